"""Cuts a product's work into chunks, the work items of `linear` and `gated_linear`.

A call of either has the operands x, panels (a stack of packed weights), layer (an index into it)
and num_rows (the number of rows of x to multiply), and the result out.
"""

from typing import Any

from cpu_kernels.calls.ranges import range_of
from cpu_kernels.calls.threads import is_followed
from cpu_kernels.compiling.jit import inner
from cpu_kernels.linear.panels import STEP
from cpu_kernels.linear.tiles import Chunk
from cpu_kernels.simd.memory import clear
from cpu_kernels.simd.micro_kernel import COLUMNS, ROWS
from cpu_kernels.simd.structs import BFLOAT16
from cpu_kernels.simd.widen import item_bytes
from cpu_kernels.simd.words import BFLOAT16_WORDS, Floats

# Cut the panels into at most 64 chunks: enough to balance the cores, few enough that claiming one
# is cheap.
PANEL_CHUNKS = 64
# Most bytes of x in a chunk: they stay in the second-level cache beside two panels. But a chunk may
# have MIN_TOKENS rows of x, so that reading a panel pays.
X_BYTES, MIN_TOKENS = 384 * 1024, 4 * ROWS
WORD, WORD_BF16 = Floats.step, BFLOAT16_WORDS.step  # bytes of a word of x


@inner
def num_tokens(call: Any) -> int:
    """Number of rows of x to multiply."""
    return min(max(call.num_rows.int32[0], 0), call.x.shape[0])


@inner
def is_bfloat16(call: Any) -> bool:
    """Whether the weights are bfloat16."""
    return call.panels.dtype == BFLOAT16


@inner
def clear_padding(call: Any) -> None:
    """Writes zeros to the rows that are not multiplied."""
    size, done = item_bytes(call.out.dtype) * call.out.shape[1], num_tokens(call)
    clear(call.out.address + size * done, size * (call.out.shape[0] - done))


@inner
def _x_step(call: Any) -> int:
    """Bytes from one row of x to the next."""
    return item_bytes(call.x.dtype) * call.x.shape[1]


@inner
def chunk_counts(call: Any, parts: int) -> tuple[int, int]:
    """Number of chunks that the panels are cut into, and that the rows of x are cut into.

    Args:
        call: the call.
        parts: consecutive panels that stay in one chunk: 2 if panels of gate and up alternate.
    """
    panels, tokens = call.panels.shape[1], num_tokens(call)
    most = max(X_BYTES // max(_x_step(call), 1) // ROWS * ROWS, MIN_TOKENS)
    return min(panels // parts, PANEL_CHUNKS), (tokens + most - 1) // most


@inner
def chunk_of(call: Any, number: int, parts: int) -> Chunk:
    """Chunk number `number` of a call; `parts` as in `chunk_counts`."""
    stack, out = call.panels, call.out
    item = item_bytes(out.dtype)
    x_step, out_step = _x_step(call), item * out.shape[1]
    panels, panel_step = stack.shape[1], STEP * stack.shape[2]
    layer = min(max(call.layer.int32[0], 0), stack.shape[0] - 1)
    of_panels, of_x = chunk_counts(call, parts)
    first, last = range_of(panels // parts, number % of_panels, of_panels)
    token, end = range_of(num_tokens(call), number // of_panels, of_x)
    return Chunk(
        stack.address + (layer * panels + parts * first) * panel_step,
        call.x.address + token * x_step,
        out.address + token * out_step + item * COLUMNS * first,
        parts * (last - first),
        parts * last < panels and is_followed(number, of_panels * of_x),
        out.shape[1] - COLUMNS * first,
        end - token,
        x_step // (WORD_BF16 if is_bfloat16(call) else WORD),
        panel_step,
        x_step,
        out_step,
    )
