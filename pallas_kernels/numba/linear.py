"""Products with a weight, or with one layer's out of a stack of them: x @ weight.T.

A stack is passed whole with the number of the layer, so nothing is copied out of it. The work is
cut into chunks of some rows of weights and up to 64 rows of x. All sums run over the same parts of
the shared axis in the same order: a row's products depend neither on the rows beside it nor on the
threads.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numba import carray, cfunc, njit

from pallas_kernels.numba import ffi, threads
from pallas_kernels.numba.dots import STEP, WEIGHT_ROWS, X_ROWS, dots_of
from pallas_kernels.numba.ffi import HANDLER
from pallas_kernels.numba.jit import cached, inner
from pallas_kernels.numba.native import address_of, pointer_at
from pallas_kernels.numba.vectors import prefetch

NAME = "pallas_kernels.linear"
# Rows of weights of a chunk: as many as make so many bytes, so that claiming it costs little and
# they stay in the second cache; but so many that each row of x that is loaded is used often.
CHUNK_BYTES, MIN_CHUNK_ROWS = 96 * 1024, 48
# Rows of x of a chunk, and numbers of a row taken at a time: together 192 KiB at most.
CHUNK_TOKENS, PART = 64, 768
# Up to so many rows the processor's own prefetching is enough.
FEW_TOKENS = 8
LINE = 64  # bytes of a cache line
# Rows of x that lie a multiple of so many bytes apart push each other out of the caches.
CLASH = 2048

_block, _block_bf16 = dots_of(X_ROWS, bfloat16=False), dots_of(X_ROWS, bfloat16=True)
_row, _row_bf16 = dots_of(1, bfloat16=False), dots_of(1, bfloat16=True)


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
    if x.dtype.itemsize * x.shape[1] % CLASH == 0 and x.shape[0] > FEW_TOKENS:
        x = jnp.pad(x, ((0, 0), (0, LINE // x.dtype.itemsize)))
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
def _chunk_counts(frame: int) -> tuple[int, int]:
    """Into how many chunks a call's rows of weights are cut, and its rows of x."""
    weight = ffi.operand(frame, 1)
    width, size = ffi.size(weight, 1), ffi.size(weight, 2)
    rows = max(CHUNK_BYTES // (4 * max(size, 1)), MIN_CHUNK_ROWS)
    tokens = _num_tokens(frame)
    return (width + rows - 1) // rows, (tokens + CHUNK_TOKENS - 1) // CHUNK_TOKENS


@inner
def _products(
    weights: int,
    second: int,
    third: int,
    x: int,
    out: int,
    tokens: int,
    count: int,
    size: int,
    length: int,
    width: int,
    more: int,
    bfloat16: bool,
) -> None:
    """Three rows of weights with all rows of x; see `dots_of` for the arguments."""
    step = 2 if bfloat16 else 4
    lines = (count * step + LINE - 1) // LINE if tokens > FEW_TOKENS else 0
    token = 0
    while token < tokens:
        rows = X_ROWS if token + X_ROWS <= tokens else 1
        for line in range(lines * token // tokens, lines * (token + rows) // tokens):
            ahead = weights + step * size + LINE * line
            prefetch(ahead)
            prefetch(ahead + step * size * second)
            prefetch(ahead + step * size * third)
        a, b = x + step * token * length, out + 4 * token * width
        if rows == 1 and bfloat16:
            _row_bf16(weights, second, third, a, b, count, size, length, width, more)
        elif rows == 1:
            _row(weights, second, third, a, b, count, size, length, width, more)
        elif bfloat16:
            _block_bf16(weights, second, third, a, b, count, size, length, width, more)
        else:
            _block(weights, second, third, a, b, count, size, length, width, more)
        token += rows


@inner
def _chunk(frame: int, chunk: int) -> None:
    """One chunk's products. Its rows of weights are taken in thirds, one row of each at a time."""
    x, weight, index = ffi.operand(frame, 0), ffi.operand(frame, 1), ffi.operand(frame, 2)
    layers, width, size = ffi.size(weight, 0), ffi.size(weight, 1), ffi.size(weight, 2)
    tokens, length = _num_tokens(frame), ffi.size(x, 1)
    bfloat16 = ffi.dtype(weight) == ffi.BFLOAT16
    number = 2 if bfloat16 else 4  # bytes
    layer = carray(pointer_at(ffi.address(index)), (1,), np.int32)[0]
    layer = min(max(layer, 0), layers - 1)
    of_weights, of_x = _chunk_counts(frame)
    first, last = _range(width, chunk % of_weights, of_weights)
    token, end = _range(tokens, chunk // of_weights, of_x)
    third = (last - first) // WEIGHT_ROWS
    steps = third + (last - first) % WEIGHT_ROWS  # the rows left over are taken one by one
    parts = max((size + PART - 1) // PART, 1)
    for turn in range(parts * steps):
        # Few rows of x: a row of weights to its end, as memory likes it. Many: a part of all rows
        # of weights, so that the same part of x stays near.
        few = tokens <= FEW_TOKENS
        part, step = (turn % parts, turn // parts) if few else (turn // steps, turn % steps)
        at, until = _range((size + STEP - 1) // STEP, part, parts)
        at, until = STEP * at, min(STEP * until, size)
        row, apart = (first + step, third) if step < third else (first + step + 2 * third, 0)
        _products(
            ffi.address(weight) + number * ((layer * width + row) * size + at),
            apart,
            2 * apart,
            ffi.address(x) + number * (token * length + at),
            ffi.address(ffi.result(frame, 0)) + 4 * (token * width + row),
            end - token,
            until - at,
            size,
            length,
            width,
            part,
            bfloat16,
        )


@inner
def _range(size: int, index: int, count: int) -> tuple[int, int]:
    """Where one of `count` equal ranges of `size` things begins and ends."""
    return size * index // count, size * (index + 1) // count


@cached(njit, "int64(int64)")
def _task(block: int) -> int:
    while True:
        chunk = threads.claim(block)
        if chunk < 0:
            return threads.leave(block)
        _chunk(threads.frame_of(block), chunk)
        threads.done(block)


@cached(cfunc, HANDLER)
def _handler(frame: int) -> int:
    if not ffi.executes(frame):
        return 0
    _clear_padding(frame)
    of_weights, of_x = _chunk_counts(frame)
    return threads.share(frame, of_weights * of_x, address_of(_task))


ffi.register(NAME, _handler)
