"""From edited logits to a token: temperature, the filters and the draw.

Each thread copies its row to private memory, so that the repeated passes over it stay in cache. The
draw applies the inverse CDF, in token order, to one uniform number.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.compiling.jit import inner
from cpu_kernels.sampling.thresholds import SIDE, deviation, threshold, weight_above
from cpu_kernels.simd.functions import exp
from cpu_kernels.simd.vectors import (
    BYTES,
    LANES,
    add,
    count_from,
    get,
    larger,
    largest,
    load,
    load_some,
    mul,
    spread,
    store,
    store_some,
    sub,
    total,
    where_less,
)

NAME = "cpu_kernels.draw"
BLOCK = SIDE * LANES  # the length of a copy is a multiple of this
# Of a greedy row the first pass finds the stretch with the largest number, the second its position.
STRETCH = 1024


def draw(
    logits: Float[Array, "R V"],
    temperature: Float[Array, "R"],
    top_n_sigma: Float[Array, "R"],
    top_k: Int[Array, "R"],
    top_p: Float[Array, "R"],
    min_p: Float[Array, "R"],
    u: Float[Array, "R"],
) -> Int[Array, "R"]:
    """Draws one token per row; at temperature 0, the first of the most probable tokens.

    Tokens with the same logit as the last one that top-k or top-p keeps are kept too. A token whose
    logit is NaN is never drawn.

    Args:
        logits: edited logits, float32.
        temperature: divisor of the logits; 0 for greedy.
        top_n_sigma: standard deviations below the largest logit to keep; 0 keeps all tokens.
        top_k: number of most probable tokens to keep; 0 keeps all.
        top_p: probability mass to keep; 1 keeps all.
        min_p: smallest probability to keep, relative to the largest; 0 keeps all.
        u: number in [0, 1); draws the first token whose cumulative probability exceeds it.
    """
    result = jax.ShapeDtypeStruct(logits.shape[:1], jnp.int32)
    call = jax.ffi.ffi_call(NAME, result)
    tokens: Array = call(logits, temperature, top_n_sigma, top_k, top_p, min_p, u)
    return tokens


@inner
def _sampled(call: Any, row: int, logits: int, numbers: int) -> int:
    """Draws the token of one row; `numbers` has room for two copies of it."""
    vocab = call.logits.shape[1]
    size = -(-vocab // BLOCK) * BLOCK
    weights = numbers + 4 * size
    top = _copy(logits, vocab, numbers, size, np.float32(1) / call.temperature.float32[row])
    k, top_p = call.top_k.int32[row], call.top_p.float32[row]
    sigmas = call.top_n_sigma.float32[row]
    least = np.float32(-np.inf)
    if sigmas > 0:
        least = top - sigmas * deviation(numbers, size)
    if 0 < k < vocab:
        _fill(weights, size, 1.0)
        least = max(threshold(numbers, weights, size, np.float32(k)), least)
    _weigh(numbers, weights, size, top)
    if top_p < 1:
        mass = weight_above(numbers, weights, size, least)
        least = max(threshold(numbers, weights, size, top_p * mass), least)
    return _pick(numbers, weights, size, least, call.min_p.float32[row], call.u.float32[row])


@inner
def _copy(logits: int, vocab: int, numbers: int, size: int, factor: Any) -> Any:
    """Copies a row times a factor, pads it with -inf, and returns the largest number."""
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
    """Writes each number's probability relative to that of the largest."""
    shift = spread(top)
    for at in range(0, 4 * size, BYTES):
        store(weights + at, exp(sub(load(numbers + at), shift)))


@inner
def _block_mass(numbers: int, weights: int, at: int, low: Any, share: Any) -> Any:
    """Total weight of a block's numbers >= `low` with weights >= `share`."""
    sums, zero = spread(0.0), spread(0.0)
    for here in range(at, at + 4 * BLOCK, BYTES):
        weight = load(weights + here)
        weight = where_less(low, load(numbers + here), weight, zero)
        sums = add(sums, where_less(share, weight, weight, zero))
    return total(sums)


@inner
def _pick(numbers: int, weights: int, size: int, least: Any, min_p: Any, u: Any) -> int:
    """Finds the block that the draw falls into, then the token in it."""
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


@inner
def _num_rows(call: Any) -> int:
    return call.logits.shape[0]


@inner
def _two_copies(call: Any) -> int:
    """Bytes for two copies of a row, aligned to a cache line; 0 if all rows are greedy."""
    for row in range(call.logits.shape[0]):
        if call.temperature.float32[row] > 0:
            return 8 * (call.logits.shape[1] + BLOCK) + BYTES
    return 0


@inner
def first_of_largest(numbers: int, size: int) -> int:
    """Index of the first largest of `size` float32; 0 if all are -inf or NaN."""
    best, first = np.float32(-np.inf), 0
    for at in range(0, size, STRETCH):
        peak = _peak(numbers + 4 * at, min(size - at, STRETCH))
        if peak > best:
            best, first = peak, at
    for i in range(first, min(first + STRETCH, size)):
        if get(numbers + 4 * i) == best:
            return i
    return 0


@inner
def _peak(numbers: int, size: int) -> Any:
    nothing = spread(-np.inf)
    a, b = nothing, nothing
    for at in range(0, size - 2 * LANES + 1, 2 * LANES):
        a = larger(load(numbers + 4 * at), a)
        b = larger(load(numbers + 4 * at + BYTES), b)
    for at in range(size // (2 * LANES) * 2 * LANES, size, LANES):
        number = load_some(numbers + 4 * at, size - at)
        a = larger(where_less(count_from(at), spread(size - 1), number, nothing), a)
    return largest(larger(a, b))


@cpu_kernel(
    NAME,
    operands="logits temperature top_n_sigma top_k top_p min_p u",
    results="tokens",
    items=_num_rows,
    scratch=_two_copies,
)
@inner
def _row(call: Any, row: int, memory: int) -> None:
    vocab = call.logits.shape[1]
    logits = call.logits.address + 4 * vocab * row
    if call.temperature.float32[row] > 0:
        token = _sampled(call, row, logits, -(-memory // BYTES) * BYTES)
    else:
        token = first_of_largest(logits, vocab)
    call.tokens.int32[row] = token
