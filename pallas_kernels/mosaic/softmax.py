"""Scores and their online softmax, a block_kv of keys at a time, in base 2."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pallas_kernels.call import Options
from pallas_kernels.mosaic import plgpu

LOG2_E = math.log2(math.e)
# A row's largest score before its first key. Finite, so that minus infinity minus it is not NaN.
FLOOR = -1e30


class Running(NamedTuple):
    """The softmax of M queries so far.

    Attributes:
        out: sum of the values, weighted by 2 ** (score - top).
        top: largest score so far.
        total: sum of the weights.
    """

    out: jax.Array
    top: jax.Array
    total: jax.Array


def start(rows: int, head_dim: int, sinks: jax.Array | None = None) -> Running:
    """The state before the first key; a sink is a score without a value."""
    out, top = plgpu.full((rows, head_dim), 0.0), plgpu.full((rows,), FLOOR)
    if sinks is None:
        return Running(out, top, plgpu.full((rows,), 0.0))
    top = jnp.maximum(top, sinks * LOG2_E)
    return Running(out, top, jnp.exp2(sinks * LOG2_E - top))


def finish(running: Running) -> tuple[jax.Array, jax.Array]:
    """The output, and the natural logarithm of the denominator (-inf for a row without keys)."""
    total = jnp.where(running.total == 0, 1.0, running.total)
    out = running.out * plgpu.across(1 / total, running.out.shape[1])
    lse = running.top / LOG2_E + jnp.log(total)
    return out, jnp.where(running.total == 0, -jnp.inf, lse)


def scores(
    products: jax.Array, distance: jax.Array | None, slopes: jax.Array | None, options: Options
) -> tuple[jax.Array, float]:
    """Scores in base 2 as (raw, factor): the score is raw * factor.

    The caller multiplies by the factor when it subtracts the top.

    Args:
        products: q.k.
        distance: key position minus query position; used only with slopes.
        slopes: ALiBi slope of each row.
        options: scale and soft cap.
    """
    if options.soft_cap is None and slopes is None and options.scale > 0:
        return products, options.scale * LOG2_E
    if options.soft_cap is None:
        logits = products * options.scale
    else:
        # tanh(x) = 1 - 2 / (e^2x + 1): exact at both ends, unlike the approximate instruction.
        power = jnp.exp2(products * (2 * LOG2_E * options.scale / options.soft_cap))
        logits = options.soft_cap - (2 * options.soft_cap) / (power + 1)
    if slopes is not None and distance is not None:
        logits = logits + plgpu.across(slopes, products.shape[1]) * distance.astype(jnp.float32)
    return logits, LOG2_E


def add_scores(running: Running, raw: jax.Array, factor: float) -> tuple[Running, jax.Array]:
    """Add the scores raw * factor. Returns the state rescaled to the new top, and the weights.

    The caller adds the weighted values to `out`.
    """
    top = jnp.maximum(running.top, raw.max(axis=1) * factor)
    weights = jnp.exp2(raw * factor - plgpu.across(top, raw.shape[1]))
    keep = jnp.exp2(running.top - top)
    out = running.out * plgpu.across(keep, running.out.shape[1])
    return Running(out, top, running.total * keep + weights.sum(axis=1)), weights
