"""Products with a weight in panels, or with one layer's out of a stack: x @ weight.T.

A stack is passed whole with the number of the layer, so nothing is copied out of it. The work is
cut into chunks of some panels of weights and some rows of x. All sums run over a row's numbers in
the same order: a row's products depend neither on how many rows there are, nor on what these hold,
nor on the threads.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int
from numba import carray, cfunc, njit

from pallas_kernels.numba import ffi, threads
from pallas_kernels.numba.ffi import HANDLER
from pallas_kernels.numba.jit import cached, inner
from pallas_kernels.numba.linear_chunk import Chunk, multiply_of
from pallas_kernels.numba.micro_kernel import COLUMNS, ROWS
from pallas_kernels.numba.native import address_of, pointer_at
from pallas_kernels.numba.panels import STEP, panel_shape
from pallas_kernels.numba.row_shares import range_of
from pallas_kernels.numba.vectors import get_int
from pallas_kernels.numba.widen import item_bytes
from pallas_kernels.numba.words import BFLOAT16_WORDS, MULTIPLIES_PAIRS, Floats

NAME = "pallas_kernels.linear_panels"
# Into how many chunks panels are cut, at most: so many that cores end together, and claiming them
# still costs little.
PANEL_CHUNKS = 64
# Rows of x of a chunk: about so many bytes, which stay in the second cache beside two panels; but
# so many rows that each panel is used often.
X_BYTES, MIN_TOKENS = 384 * 1024, 4 * ROWS

multiply = multiply_of(Floats)
multiply_bf16 = multiply_of(BFLOAT16_WORDS)
WORD, WORD_BF16 = Floats.step, BFLOAT16_WORDS.step  # bytes of a word of x


def linear(
    x: Float[Array, "T in"],
    panels: Float[Array, "panels words columns"] | Float[Array, "L panels words columns"],
    *,
    width: int,
    layer: Int[Array, ""] | None = None,
    num_rows: Int[Array, ""] | None = None,
) -> Float[Array, "T width"]:
    """x @ weight.T in float32, on a CPU; of a stack, with the weight of one layer.

    Args:
        x: is rounded to the type of the weight, if it has another.
        panels: the weight [width, in], float32 or bfloat16, as `pack_panels` lays it out.
        layer: which of a stack, int32; a number beyond the ends is taken for the nearest.
        num_rows: how many rows of x are multiplied, int32; the result has zeros for the others,
            so padding costs nothing.

    Raises:
        ValueError: the panels are not those of a weight [width, in].
    """
    expected = panel_shape(width, x.shape[1], panels.dtype)
    if panels.shape[-3:] != expected:
        raise ValueError(
            f"panels of a weight [{width}, {x.shape[1]}] must be {expected}, got {panels.shape}"
        )
    stack = panels if panels.ndim == 4 else panels[None]
    index = jnp.zeros((), jnp.int32) if layer is None else layer
    count = jnp.int32(x.shape[0]) if num_rows is None else num_rows
    result = jax.ShapeDtypeStruct((x.shape[0], width), jnp.float32)
    out: Array = jax.ffi.ffi_call(NAME, result)(_words(x, panels.dtype), stack, index, count)
    return out


def _words(x: Float[Array, "T in"], dtype: jnp.dtype) -> Array:
    """x in the type of the weight, of whole words, and widened where that is how it is multiplied.

    XLA would leave out a conversion there and back.
    """
    if dtype == jnp.float32:
        return x.astype(dtype)
    x = jnp.pad(x, ((0, 0), (0, x.shape[1] % 2)))
    if MULTIPLIES_PAIRS:
        return x.astype(dtype)
    return lax.reduce_precision(x.astype(jnp.float32), exponent_bits=8, mantissa_bits=7)


@inner
def _num_tokens(frame: int) -> int:
    """How many rows of x are multiplied."""
    count = get_int(ffi.address(ffi.operand(frame, 3)))
    return min(max(count, 0), ffi.size(ffi.operand(frame, 0), 0))


@inner
def _clear_padding(frame: int) -> None:
    """Zeros for the rows that are not multiplied."""
    result = ffi.result(frame, 0)
    tokens, width = ffi.size(result, 0), ffi.size(result, 1)
    out = carray(pointer_at(ffi.address(result)), (tokens, width), np.float32)
    out[_num_tokens(frame) :] = 0


@inner
def _is_bfloat16(frame: int) -> bool:
    return ffi.dtype(ffi.operand(frame, 1)) == ffi.BFLOAT16


@inner
def _x_step(frame: int) -> int:
    """Bytes from one row of x to the next."""
    x = ffi.operand(frame, 0)
    return item_bytes(ffi.dtype(x)) * ffi.size(x, 1)


@inner
def _chunk_counts(frame: int) -> tuple[int, int]:
    """Into how many chunks a call's panels are cut, and its rows of x."""
    stack, tokens = ffi.operand(frame, 1), _num_tokens(frame)
    most = max(X_BYTES // max(_x_step(frame), 1) // ROWS * ROWS, MIN_TOKENS)
    return min(ffi.size(stack, 1), PANEL_CHUNKS), (tokens + most - 1) // most


@inner
def _chunk(frame: int, number: int, others: int) -> Chunk:
    """The chunk of a number, after which the same thread takes so many others."""
    stack, out = ffi.operand(frame, 1), ffi.result(frame, 0)
    x_step, out_step = _x_step(frame), 4 * ffi.size(out, 1)
    panels, panel_step = ffi.size(stack, 1), STEP * ffi.size(stack, 2)
    layer = get_int(ffi.address(ffi.operand(frame, 2)))
    layer = min(max(layer, 0), ffi.size(stack, 0) - 1)
    of_panels, of_x = _chunk_counts(frame)
    first, last = range_of(panels, number % of_panels, of_panels)
    token, end = range_of(_num_tokens(frame), number // of_panels, of_x)
    return Chunk(
        ffi.address(stack) + (layer * panels + first) * panel_step,
        ffi.address(ffi.operand(frame, 0)) + token * x_step,
        ffi.address(out) + token * out_step + 4 * COLUMNS * first,
        last - first,
        last < panels and others > 0,
        ffi.size(out, 1) - COLUMNS * first,
        end - token,
        x_step // (WORD_BF16 if _is_bfloat16(frame) else WORD),
        panel_step,
        x_step,
        out_step,
    )


@cached(njit, "int64(int64)")
def _task(block: int) -> int:
    seat = threads.sit_down(block)
    while True:
        number, others = threads.claim_next(block, seat)
        if number < 0:
            return threads.leave(block)
        frame = threads.frame_of(block)
        chunk = _chunk(frame, number, others)
        if _is_bfloat16(frame):
            multiply_bf16(chunk)
        else:
            multiply(chunk)
        threads.done(block)


@cached(cfunc, HANDLER)
def _handler(frame: int) -> int:
    if not ffi.executes(frame):
        return 0
    _clear_padding(frame)
    of_panels, of_x = _chunk_counts(frame)
    return threads.share(frame, of_panels * of_x, address_of(_task))


ffi.register(NAME, _handler)
