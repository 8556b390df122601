"""What the frame of a product's call says, and the chunks that its work is cut into.

Operands are x, the stack of weights in panels, the layer's index and how many rows are multiplied;
what a kernel wants besides comes after them.
"""

import numpy as np
from numba import carray

from cpu_kernels import ffi, threads
from cpu_kernels.jit import inner
from cpu_kernels.linear_chunk import Chunk
from cpu_kernels.micro_kernel import COLUMNS, ROWS
from cpu_kernels.native import pointer_at
from cpu_kernels.panels import STEP
from cpu_kernels.row_shares import range_of
from cpu_kernels.vectors import get_int
from cpu_kernels.widen import item_bytes
from cpu_kernels.words import BFLOAT16_WORDS, Floats

# Into how many chunks panels are cut, at most: so many that cores end together, and claiming them
# still costs little.
PANEL_CHUNKS = 64
# Rows of x of a chunk: about so many bytes, which stay in the second cache beside two panels; but
# so many rows that each panel is used often.
X_BYTES, MIN_TOKENS = 384 * 1024, 4 * ROWS
WORD, WORD_BF16 = Floats.step, BFLOAT16_WORDS.step  # bytes of a word of x


@inner
def num_tokens(frame: int) -> int:
    """How many rows of x are multiplied."""
    count = get_int(ffi.address(ffi.operand(frame, 3)))
    return min(max(count, 0), ffi.size(ffi.operand(frame, 0), 0))


@inner
def _clear_padding(frame: int) -> None:
    """Zeros for the rows that are not multiplied."""
    result = ffi.result(frame, 0)
    step = item_bytes(ffi.dtype(result)) * ffi.size(result, 1)
    out = carray(pointer_at(ffi.address(result)), (ffi.size(result, 0), step), np.uint8)
    out[num_tokens(frame) :] = 0


@inner
def is_bfloat16(frame: int) -> bool:
    """Whether the weights are, and x."""
    return ffi.dtype(ffi.operand(frame, 1)) == ffi.BFLOAT16


@inner
def _x_step(frame: int) -> int:
    """Bytes from one row of x to the next."""
    x = ffi.operand(frame, 0)
    return item_bytes(ffi.dtype(x)) * ffi.size(x, 1)


@inner
def chunk_counts(frame: int, parts: int) -> tuple[int, int]:
    """Into how many chunks a call's panels are cut, so many of them at a time, and its rows."""
    panels, tokens = ffi.size(ffi.operand(frame, 1), 1), num_tokens(frame)
    most = max(X_BYTES // max(_x_step(frame), 1) // ROWS * ROWS, MIN_TOKENS)
    return min(panels // parts, PANEL_CHUNKS), (tokens + most - 1) // most


@inner
def chunk_of(frame: int, number: int, others: int, parts: int) -> Chunk:
    """The chunk of a number, after which the same thread takes so many others.

    Args:
        parts: how many panels make one of the result's: 2 where it is made of gate and up.
    """
    stack, out = ffi.operand(frame, 1), ffi.result(frame, 0)
    item = item_bytes(ffi.dtype(out))
    x_step, out_step = _x_step(frame), item * ffi.size(out, 1)
    panels, panel_step = ffi.size(stack, 1), STEP * ffi.size(stack, 2)
    layer = get_int(ffi.address(ffi.operand(frame, 2)))
    layer = min(max(layer, 0), ffi.size(stack, 0) - 1)
    of_panels, of_x = chunk_counts(frame, parts)
    first, last = range_of(panels // parts, number % of_panels, of_panels)
    token, end = range_of(num_tokens(frame), number // of_panels, of_x)
    return Chunk(
        ffi.address(stack) + (layer * panels + parts * first) * panel_step,
        ffi.address(ffi.operand(frame, 0)) + token * x_step,
        ffi.address(out) + token * out_step + item * COLUMNS * first,
        parts * (last - first),
        parts * last < panels and others > 0,
        ffi.size(out, 1) - COLUMNS * first,
        end - token,
        x_step // (WORD_BF16 if is_bfloat16(frame) else WORD),
        panel_step,
        x_step,
        out_step,
    )


@inner
def share_chunks(frame: int, parts: int, task: int) -> int:
    """Has the function at an address work on all chunks of a call; `parts` as of `chunk_of`."""
    _clear_padding(frame)
    of_panels, of_x = chunk_counts(frame, parts)
    return threads.share(frame, of_panels * of_x, task)
