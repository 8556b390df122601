"""From edited logits to a token on a CPU: temperature, top-k, top-p, min-p and the draw.

A row is copied to memory of the thread's own, which stays near while it is gone through again and
again. The draw is the inverse CDF in the order of the tokens, by one uniform number.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numba import cfunc, njit

from cpu_kernels import ffi, threads
from cpu_kernels.ffi import HANDLER
from cpu_kernels.functions import exp
from cpu_kernels.greedy import first_of_largest
from cpu_kernels.jit import cached, inner
from cpu_kernels.native import address_of
from cpu_kernels.thresholds import SIDE, threshold, weight_above
from cpu_kernels.vectors import (
    BYTES,
    LANES,
    add,
    get,
    get_int,
    larger,
    largest,
    load,
    load_some,
    mul,
    put_int,
    spread,
    store,
    store_some,
    sub,
    total,
    where_less,
)

NAME = "cpu_kernels.draw"
BLOCK = SIDE * LANES  # numbers that a copy's length is a multiple of


def draw(
    logits: Float[Array, "R V"],
    temperature: Float[Array, "R"],
    top_k: Int[Array, "R"],
    top_p: Float[Array, "R"],
    min_p: Float[Array, "R"],
    u: Float[Array, "R"],
) -> Int[Array, "R"]:
    """One token a row; the first of the most probable ones where the temperature is 0.

    Ties with the last token that top-k or top-p keeps are kept. A NaN is never drawn.

    Args:
        logits: float32.
        top_k: 0 for all.
        u: in [0, 1): the first token whose cumulative probability exceeds it is drawn.
    """
    result = jax.ShapeDtypeStruct(logits.shape[:1], jnp.int32)
    call = jax.ffi.ffi_call(NAME, result)
    tokens: Array = call(logits, temperature, top_k, top_p, min_p, u)
    return tokens


@inner
def _of_row(frame: int, operand: int, row: int) -> Any:
    return get(ffi.address(ffi.operand(frame, operand)) + 4 * row)


@inner
def _row(frame: int, row: int, logits: int, vocab: int, numbers: int) -> int:
    """The draw of one row, with memory for two copies of it."""
    size = -(-vocab // BLOCK) * BLOCK
    weights = numbers + 4 * size
    top = _copy(logits, vocab, numbers, size, np.float32(1) / _of_row(frame, 1, row))
    k = get_int(ffi.address(ffi.operand(frame, 2)) + 4 * row)
    top_p, min_p = _of_row(frame, 3, row), _of_row(frame, 4, row)
    least = np.float32(-np.inf)
    if 0 < k < vocab:
        _fill(weights, size, 1.0)
        least = threshold(numbers, weights, size, np.float32(k))
    _weigh(numbers, weights, size, top)
    if top_p < 1:
        mass = weight_above(numbers, weights, size, least)
        least = max(threshold(numbers, weights, size, top_p * mass), least)
    return _pick(numbers, weights, size, least, min_p, _of_row(frame, 5, row))


@inner
def _copy(logits: int, vocab: int, numbers: int, size: int, factor: Any) -> Any:
    """Copies a row, times a factor, and -inf behind it; returns the largest number."""
    _fill(numbers + 4 * (size - BLOCK), BLOCK, -np.inf)
    peak, scale = spread(-np.inf), spread(factor)
    for at in range(0, vocab - LANES + 1, LANES):
        number = mul(load(logits + 4 * at), scale)
        store(numbers + 4 * at, number)
        peak = larger(number, peak)
    done = vocab // LANES * LANES
    if done < vocab:
        last = mul(load_some(logits + 4 * done, vocab - done), scale)
        store_some(numbers + 4 * done, last, vocab - done)
        peak = larger(load(numbers + 4 * done), peak)
    return largest(peak)


@inner
def _fill(start: int, count: int, number: Any) -> None:
    for place in range(start, start + 4 * count, BYTES):
        store(place, spread(number))


@inner
def _weigh(numbers: int, weights: int, size: int, top: Any) -> None:
    """Probabilities over that of the largest number."""
    shift = spread(top)
    for at in range(0, 4 * size, BYTES):
        store(weights + at, exp(sub(load(numbers + at), shift)))


@inner
def _block_mass(numbers: int, weights: int, at: int, low: Any, share: Any) -> Any:
    """Weight of a block of numbers, of those that have not less than these two."""
    sums, zero = spread(0.0), spread(0.0)
    for here in range(at, at + 4 * BLOCK, BYTES):
        weight = load(weights + here)
        weight = where_less(low, load(numbers + here), weight, zero)
        sums = add(sums, where_less(share, weight, weight, zero))
    return total(sums)


@inner
def _pick(numbers: int, weights: int, size: int, least: Any, min_p: Any, u: Any) -> int:
    """The draw: the block first, then the token in it."""
    low, share = spread(least), spread(min_p)
    mass = 0.0
    for at in range(0, 4 * size, 4 * BLOCK):
        mass += _block_mass(numbers, weights, at, low, share)
    target, mass, last = u * mass, 0.0, 0
    for at in range(0, 4 * size, 4 * BLOCK):
        before, mass = mass, mass + _block_mass(numbers, weights, at, low, share)
        if mass > target:
            for i in range(at // 4, at // 4 + BLOCK):
                weight = get(weights + 4 * i)
                if get(numbers + 4 * i) >= least and weight >= min_p and weight > 0:
                    before, last = before + weight, i
                    if before > target:
                        break
            break
    return last


@cached(njit, "int64(int64)")
def _task(block: int) -> int:
    memory = np.empty(0, np.float32)
    while True:
        row = threads.claim(block)
        if row < 0:
            return threads.leave(block)
        frame = threads.frame_of(block)
        vocab = ffi.size(ffi.operand(frame, 0), 1)
        logits = ffi.address(ffi.operand(frame, 0)) + 4 * vocab * row
        if _of_row(frame, 1, row) > 0:
            if len(memory) == 0:
                memory = np.empty(2 * (vocab + BLOCK) + LANES, np.float32)
            token = _row(frame, row, logits, vocab, -(-memory.ctypes.data // BYTES) * BYTES)
        else:
            token = first_of_largest(logits, vocab)
        put_int(ffi.address(ffi.result(frame, 0)) + 4 * row, token)
        threads.done(block)


@cached(cfunc, HANDLER)
def _handler(frame: int) -> int:
    if not ffi.executes(frame):
        return 0
    return threads.share(frame, ffi.size(ffi.result(frame, 0), 0), address_of(_task))


ffi.register(NAME, _handler)
