"""Draws one token a row: the most probable one, or one by inverse CDF.

A draw takes a single uniform number and does not sort. The uniform number depends only on the row's
seed and position, so a request draws the same tokens in any batch. The cumulative sum has two
levels (sums of groups of 128 tokens, then the tokens of one group), because a scan over the whole
vocabulary would be the slow part. XLA compiles this form; on a CPU one kernel replaces it
(cpu_kernels/sampling/draw.py).

The most probable token is found in two levels too: XLA's CPU backend computes argmax one number at
a time, but it vectorises maxima of groups.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt32

from jax_engine.sampling.filters import lowest_kept
from jax_engine.sampling.sampling_inputs import SamplingInputs, branch

GROUP = 128


def most_probable(logits: Float[Array, "R V"]) -> Int[Array, "R"]:
    """The index of each row's largest logit, the first one of ties, as `jnp.argmax` returns it."""
    rows, vocab = logits.shape
    groups = -(-vocab // GROUP)
    fill = ((0, 0), (0, groups * GROUP - vocab))
    tiles = jnp.pad(logits, fill, constant_values=-jnp.inf).reshape(rows, groups, GROUP)
    group = jnp.argmax(jnp.max(tiles, axis=2), axis=1)
    tile = jnp.take_along_axis(tiles, group[:, None, None], axis=1)[:, 0]
    return (group * GROUP + jnp.argmax(tile, axis=1)).astype(jnp.int32)


def draw(logits: Float[Array, "R V"], inputs: SamplingInputs) -> Int[Array, "R"]:
    """Applies temperature and filters, then draws. Greedy rows take the most probable token."""
    greedy = most_probable(logits)
    return branch(
        None if inputs.asks is None else inputs.asks.draws,
        lambda: jnp.any(inputs.temperature > 0),
        lambda: jnp.where(inputs.temperature > 0, draw_in_parts(logits, inputs), greedy),
        lambda: greedy,
    )


def tempered(logits: Float[Array, "R V"], inputs: SamplingInputs) -> Float[Array, "R V"]:
    """Divides the logits by the temperature; greedy rows stay as they are."""
    return logits / jnp.where(inputs.temperature > 0, inputs.temperature, 1.0)[:, None]


def draw_in_parts(logits: Float[Array, "R V"], inputs: SamplingInputs) -> Int[Array, "R"]:
    """Draws for every row, as if none were greedy."""
    scaled = tempered(logits, inputs)
    asks = inputs.asks
    filtered = (inputs.top_n_sigma > 0) | (inputs.top_k > 0) | (inputs.top_p < 1.0)
    lowest = branch(
        None if asks is None else asks.deviation or asks.shortlist,
        lambda: jnp.any(filtered),
        lambda: lowest_kept(scaled, inputs.top_n_sigma, inputs.top_k, inputs.top_p, asks),
        lambda: jnp.full(logits.shape[0], -jnp.inf),
    )
    return inverse_cdf(scaled, lowest, inputs.min_p, uniforms(inputs.seed, inputs.position))


def uniforms(seed: UInt32[Array, "R 2"], position: Int[Array, "R"]) -> Float[Array, "R"]:
    """Uniform numbers in [0, 1), by threefry keyed with (seed, position)."""

    def one(words: UInt32[Array, "2"], at: Int[Array, ""]) -> Float[Array, ""]:
        key = jax.random.wrap_key_data(words, impl="threefry2x32")
        return jax.random.uniform(jax.random.fold_in(key, at))

    return jax.vmap(one)(seed, position)


def inverse_cdf(
    logits: Float[Array, "R V"],
    lowest: Float[Array, "R"],
    min_p: Float[Array, "R"],
    u: Float[Array, "R"],
) -> Int[Array, "R"]:
    """The first token whose cumulative weight, exp(logit), exceeds u times the total.

    Weights are computed inside the sum, and again for one group of tokens. This avoids writing a
    second array of the logits' size.

    Args:
        lowest: Smaller logits get weight 0.
        min_p: Weights below this share of the largest weight become 0.
        u: In [0, 1).
    """
    rows, vocab = logits.shape
    groups = -(-vocab // GROUP)
    fill = ((0, 0), (0, groups * GROUP - vocab))
    tiles = jnp.pad(logits, fill, constant_values=-jnp.inf).reshape(rows, groups, GROUP)
    top = jnp.max(tiles, axis=(1, 2))
    cumulative = jnp.cumsum(jnp.sum(token_weights(tiles, top, lowest, min_p), axis=2), axis=1)
    target = u * cumulative[:, -1]
    group = _first_above(cumulative, target)
    before = jnp.where(group > 0, _pick(cumulative, jnp.maximum(group - 1, 0)), 0.0)
    tile = jnp.take_along_axis(tiles, group[:, None, None], axis=1)[:, 0]
    tile = token_weights(tile, top, lowest, min_p)
    inside = before[:, None] + jnp.cumsum(tile, axis=1)
    return (group * GROUP + _token_above(tile, inside, target)).astype(jnp.int32)


def _token_above(
    weights: Float[Array, "R N"], sums: Float[Array, "R N"], target: Float[Array, "R"]
) -> Int[Array, "R"]:
    """The first possible token of a group whose sum is above the target.

    Rounding may leave all sums of a group at or below it: the last possible token then.
    """
    last = GROUP - 1 - jnp.argmax(jnp.flip(weights > 0, axis=1), axis=1)
    above = (sums > target[:, None]) & (weights > 0)
    return jnp.where(jnp.any(above, axis=1), jnp.argmax(above, axis=1), last)


def token_weights(
    logits: Float[Array, "R *G N"],
    top: Float[Array, "R"],
    lowest: Float[Array, "R"],
    min_p: Float[Array, "R"],
) -> Float[Array, "R *G N"]:
    """Probabilities relative to that of the row's largest logit, `top`. See `inverse_cdf`."""
    axes = [1] * (logits.ndim - 1)
    top, lowest, min_p = (of_row.reshape(-1, *axes) for of_row in (top, lowest, min_p))
    weights = jnp.exp(logits - top)
    return jnp.where((logits >= lowest) & (weights >= min_p), weights, 0.0)


def _first_above(cumulative: Float[Array, "R G"], target: Float[Array, "R"]) -> Int[Array, "R"]:
    return jnp.argmax(cumulative > target[:, None], axis=1)


def _pick(values: Float[Array, "R G"], at: Int[Array, "R"]) -> Float[Array, "R"]:
    return jnp.take_along_axis(values, at[:, None], axis=1)[:, 0]
