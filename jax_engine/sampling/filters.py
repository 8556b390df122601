"""Top-n-sigma, top-k and top-p without sorting: find a threshold, keep the logits that reach it.

Each row keeps its logits >= t. For top-k and top-p, t is usually among the 256 largest logits,
which a partial sort finds quickly. Otherwise t is found bit by bit: floats have the order of their
bits (negative ones flipped). So 32 passes of compare and sum over all rows find the largest t with
"at least k logits >= t", or with "the mass of logits >= t reaches p". Ties with the boundary token
are kept in both cases, so the result does not depend on the order of tokens.
"""

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, UInt32

from jax_engine.sampling.sampling_inputs import CANDIDATES, SamplerStages, branch


def lowest_kept(
    logits: Float[Array, "R V"],
    top_n_sigma: Float[Array, "R"],
    top_k: Int[Array, "R"],
    top_p: Float[Array, "R"],
    asks: SamplerStages | None = None,
) -> Float[Array, "R"]:
    """The smallest logit kept by top-n-sigma, then top-k, then top-p, each of what is left.

    Args:
        asks: What the rows ask for, where the host says it.
    """
    nearest = branch(
        None if asks is None else asks.deviation,
        lambda: jnp.any(top_n_sigma > 0),
        lambda: _deviation_threshold(logits, top_n_sigma),
        lambda: jnp.full(logits.shape[0], -jnp.inf),
    )
    return branch(
        None if asks is None else asks.shortlist,
        lambda: jnp.any((top_k > 0) | (top_p < 1.0)),
        lambda: _lowest_of_most_probable(logits, nearest, top_k, top_p, asks),
        lambda: nearest,
    )


def _deviation_threshold(
    logits: Float[Array, "R V"], top_n_sigma: Float[Array, "R"]
) -> Float[Array, "R"]:
    """The largest logit minus n standard deviations (of logits above -inf); -inf if n is 0."""
    sigma = jnp.std(logits, axis=1, where=logits > -jnp.inf)
    return jnp.where(top_n_sigma > 0, jnp.max(logits, axis=1) - top_n_sigma * sigma, -jnp.inf)


def _lowest_of_most_probable(
    logits: Float[Array, "R V"],
    nearest: Float[Array, "R"],
    top_k: Int[Array, "R"],
    top_p: Float[Array, "R"],
    asks: SamplerStages | None,
) -> Float[Array, "R"]:
    """The smallest logit kept by top-k, then top-p (V1's order); at least `nearest`."""
    vocab = logits.shape[1]
    k = jnp.where(top_k <= 0, vocab, jnp.minimum(top_k, vocab))
    weights = jnp.exp(logits - jnp.max(logits, axis=1, keepdims=True))
    # Without the barrier XLA slices the result, no longer recognises a top-k, and sorts all of it.
    candidates = lax.optimization_barrier(lax.top_k(logits, min(CANDIDATES, vocab))[0])
    long_list = None if asks is None else asks.long_list
    by_count = jnp.maximum(_count_threshold(logits, candidates, k, long_list), nearest)
    left = jnp.where(logits >= by_count[:, None], weights, 0.0)
    nucleus = None if asks is None else asks.nucleus
    return _mass_threshold(logits, candidates, left, by_count, top_p, nucleus)


def _count_threshold(
    logits: Float[Array, "R V"],
    candidates: Float[Array, "R C"],
    k: Int[Array, "R"],
    long_list: bool | None,
) -> Float[Array, "R"]:
    """The k-th largest logit of each row; -inf where k is the whole vocabulary."""
    num_candidates, vocab = candidates.shape[1], logits.shape[1]
    kth = _pick(candidates, jnp.minimum(k, num_candidates) - 1)
    covered = (k <= num_candidates) | (k == vocab)
    ones = jnp.ones_like(logits)
    found = branch(
        long_list,
        lambda: ~jnp.all(covered),
        lambda: _largest_threshold(logits, ones, k.astype(jnp.float32)),
        lambda: kth,
    )
    return jnp.where(k == vocab, -jnp.inf, found)


def _mass_threshold(
    logits: Float[Array, "R V"],
    candidates: Float[Array, "R C"],
    weights: Float[Array, "R V"],
    low: Float[Array, "R"],
    top_p: Float[Array, "R"],
    nucleus: bool | None,
) -> Float[Array, "R"]:
    """The largest t such that the logits >= t have top_p of all weight; at least `low`."""
    wanted = top_p * jnp.sum(weights, axis=1)
    relative = jnp.where(candidates >= low[:, None], jnp.exp(candidates - candidates[:, :1]), 0.0)
    reached = jnp.cumsum(relative, axis=1) >= wanted[:, None]
    boundary = _pick(candidates, jnp.argmax(reached, axis=1))
    covered = jnp.any(reached, axis=1) | (top_p >= 1.0)
    # The host cannot know whether the candidates have enough weight: where it decides, all search.
    found = branch(
        nucleus,
        lambda: ~jnp.all(covered),
        lambda: _largest_threshold(logits, weights, wanted),
        lambda: boundary,
    )
    return jnp.where(top_p >= 1.0, low, jnp.maximum(low, found))


def _pick(values: Float[Array, "R C"], at: Int[Array, "R"]) -> Float[Array, "R"]:
    return jnp.take_along_axis(values, at[:, None], axis=1)[:, 0]


def _largest_threshold(
    logits: Float[Array, "R V"], weights: Float[Array, "R V"], wanted: Float[Array, "R"]
) -> Float[Array, "R"]:
    """For each row, the largest t such that the weights of logits >= t sum to at least `wanted`."""
    keys = _to_ordered_bits(logits)

    def try_bit(i: Int[Array, ""], t: UInt32[Array, "R"]) -> UInt32[Array, "R"]:
        higher = t | (jnp.uint32(1) << (31 - i).astype(jnp.uint32))
        mass = jnp.sum(jnp.where(keys >= higher[:, None], weights, 0.0), axis=1)
        return jnp.where(mass >= wanted, higher, t)

    found = lax.fori_loop(0, 32, try_bit, jnp.zeros(keys.shape[:1], jnp.uint32))
    return _from_ordered_bits(found)


_SIGN = np.uint32(0x80000000)


def _to_ordered_bits(x: Float[Array, "..."]) -> UInt32[Array, "..."]:
    """Unsigned integers in the same order as the floats."""
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    return jnp.where(bits >= _SIGN, ~bits, bits | _SIGN)


def _from_ordered_bits(key: UInt32[Array, "..."]) -> Float[Array, "..."]:
    bits = jnp.where(key >= _SIGN, key ^ _SIGN, ~key)
    # Keys below -inf's decode to NaN: only "keep all" produces them.
    x = lax.bitcast_convert_type(bits, jnp.float32)
    return jnp.where(jnp.isnan(x), -jnp.inf, x)
