"""Products with a weight, or with one layer's out of a stack of them: x @ weight.T.

A stack is passed whole with the number of the layer, so nothing is copied out of it. The work is
cut into chunks of some rows of weights and of x. All sums of a call run over the same parts of the
shared axis in the same order: a row's products depend neither on what the rows beside it hold nor
on the threads. (The order is another one from MANY_TOKENS rows on.)
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numba import carray, cfunc, njit

from pallas_kernels.numba import ffi, threads
from pallas_kernels.numba.ffi import HANDLER
from pallas_kernels.numba.jit import cached, inner
from pallas_kernels.numba.linear_chunk import (
    FEW_TOKENS,
    LINE,
    Chunk,
    multiply,
    multiply_bf16,
    scratch_bytes,
)
from pallas_kernels.numba.linear_packed import (
    PACKED_ROWS,
    PACKED_TOKENS,
    multiply_packed,
    packed_bytes,
    packs,
)
from pallas_kernels.numba.native import address_of, free, malloc, pointer_at
from pallas_kernels.numba.row_shares import range_of
from pallas_kernels.numba.widen import item_bytes

NAME = "pallas_kernels.linear"
# Rows of weights of a chunk: as many as make so many bytes of float32, so that claiming it costs
# little and they stay in the second cache; but so many that each row of x that is loaded is used
# often, and not so many that scratch gets large where rows are short.
CHUNK_BYTES, MIN_CHUNK_ROWS, MAX_CHUNK_ROWS = 96 * 1024, 48, 512
CHUNK_TOKENS = 64  # rows of x of a chunk
# Rows of x that lie a multiple of so many bytes apart push each other out of the caches.
CLASH = 2048


def linear(
    x: Float[Array, "T in"],
    weight: Float[Array, "out in"] | Float[Array, "L out in"],
    *,
    layer: Int[Array, ""] | None = None,
    num_rows: Int[Array, ""] | None = None,
) -> Float[Array, "T out"]:
    """x @ weight.T in float32, on a CPU; of a stack, with the weight of one layer.

    Args:
        x: is rounded to the type of the weight, if it has another.
        weight: float32 or bfloat16.
        layer: which of a stack, int32; a number beyond the ends is taken for the nearest.
        num_rows: how many rows of x are multiplied, int32; the result has zeros for the others,
            so padding costs nothing.
    """
    stack = weight if weight.ndim == 3 else weight[None]
    index = jnp.zeros((), jnp.int32) if layer is None else layer
    count = jnp.int32(x.shape[0]) if num_rows is None else num_rows
    result = jax.ShapeDtypeStruct((x.shape[0], stack.shape[1]), jnp.float32)
    x = x.astype(weight.dtype)
    if x.dtype == jnp.float32 and 4 * x.shape[1] % CLASH == 0 and x.shape[0] > FEW_TOKENS:
        x = jnp.pad(x, ((0, 0), (0, LINE // 4)))
    out: Array = jax.ffi.ffi_call(NAME, result)(x, stack, index, count)
    return out


@inner
def _num_tokens(frame: int) -> int:
    """How many rows of x are multiplied."""
    count = carray(pointer_at(ffi.address(ffi.operand(frame, 3))), (1,), np.int32)[0]
    return min(max(int(count), 0), ffi.size(ffi.operand(frame, 0), 0))


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
def _packs(frame: int) -> bool:
    """Whether a call's weights are packed."""
    x, weight = ffi.operand(frame, 0), ffi.operand(frame, 1)
    return packs(ffi.size(x, 0), ffi.size(weight, 2), _is_bfloat16(frame))


@inner
def _chunk_rows(frame: int) -> int:
    """Rows of weights of a chunk, at most."""
    size = ffi.size(ffi.operand(frame, 1), 2)
    if _packs(frame):
        return PACKED_ROWS
    return min(max(CHUNK_BYTES // (4 * max(size, 1)), MIN_CHUNK_ROWS), MAX_CHUNK_ROWS)


@inner
def _chunk_counts(frame: int) -> tuple[int, int]:
    """Into how many chunks a call's rows of weights are cut, and its rows of x."""
    width, rows = ffi.size(ffi.operand(frame, 1), 1), _chunk_rows(frame)
    tokens, most = _num_tokens(frame), PACKED_TOKENS if _packs(frame) else CHUNK_TOKENS
    return (width + rows - 1) // rows, (tokens + most - 1) // most


@inner
def _scratch(frame: int) -> int:
    """Memory for the chunks of a call, or 0 where none is needed."""
    weight, tokens = ffi.operand(frame, 1), min(_num_tokens(frame), CHUNK_TOKENS)
    if _packs(frame):
        return int(malloc(packed_bytes(ffi.size(weight, 2))))
    if not _is_bfloat16(frame):
        return 0
    return int(malloc(scratch_bytes(_chunk_rows(frame), tokens, ffi.size(weight, 2))))


@inner
def _chunk(frame: int, number: int) -> Chunk:
    """The chunk of a number."""
    x, weight, index = ffi.operand(frame, 0), ffi.operand(frame, 1), ffi.operand(frame, 2)
    layers, width, size = ffi.size(weight, 0), ffi.size(weight, 1), ffi.size(weight, 2)
    length, item = ffi.size(x, 1), item_bytes(ffi.dtype(weight))
    layer = carray(pointer_at(ffi.address(index)), (1,), np.int32)[0]
    layer = min(max(layer, 0), layers - 1)
    of_weights, of_x = _chunk_counts(frame)
    first, last = range_of(width, number % of_weights, of_weights)
    token, end = range_of(_num_tokens(frame), number // of_weights, of_x)
    return Chunk(
        ffi.address(weight) + item * (layer * width + first) * size,
        ffi.address(x) + item * token * length,
        ffi.address(ffi.result(frame, 0)) + 4 * (token * width + first),
        last - first,
        end - token,
        size,
        length,
        width,
    )


@cached(njit, "int64(int64)")
def _task(block: int) -> int:
    scratch = 0
    while True:
        number = threads.claim(block)
        if number < 0:
            if scratch != 0:
                free(scratch)
            return threads.leave(block)
        frame = threads.frame_of(block)
        if scratch == 0:
            scratch = _scratch(frame)
        chunk, narrow = _chunk(frame, number), _is_bfloat16(frame)
        if _packs(frame):
            multiply_packed(chunk, scratch, narrow)
        elif narrow:
            multiply_bf16(chunk, scratch)
        else:
            multiply(chunk)
        threads.done(block)


@cached(cfunc, HANDLER)
def _handler(frame: int) -> int:
    if not ffi.executes(frame):
        return 0
    _clear_padding(frame)
    of_weights, of_x = _chunk_counts(frame)
    return threads.share(frame, of_weights * of_x, address_of(_task))


ffi.register(NAME, _handler)
