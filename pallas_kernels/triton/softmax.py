"""Online softmax over stretches of a context, in base 2: what both kernels do with what they read.

Scores are kept times log2(e), so that the exponential is the hardware's own.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from pallas_kernels.triton.context import Parts, parts
from pallas_kernels.triton.dialect import dot, load
from pallas_kernels.triton.operands import Geometry, Operands

LOG2E = math.log2(math.e)
LN2 = math.log(2.0)


class State(NamedTuple):
    """What M rows have gathered so far.

    Attributes:
        out: weighted sum of values, in parts [M, part].
        top: largest score [M]; -inf before the first.
        total: sum of weights [M].
    """

    out: Parts
    top: Float[Array, " M"]
    total: Float[Array, " M"]


class Scoring(NamedTuple):
    """What turns q.k into a score in base 2.

    Attributes:
        factor: the call's scale and, where the cache is quantised, the keys' scale.
        soft_cap: bound of the scores' magnitude, or None.
        slopes: ALiBi slope of each row [M] in base 2, or None.
    """

    factor: float | Float[Array, ""]
    soft_cap: float | None
    slopes: Float[Array, " M"] | None


def empty(rows: int, dim: int) -> State:
    """Nothing gathered yet."""
    return State(
        tuple(jnp.zeros((rows, size), jnp.float32) for _, size in parts(dim)),
        jnp.full((rows,), -jnp.inf, jnp.float32),
        jnp.zeros((rows,), jnp.float32),
    )


def scoring(
    operands: Operands,
    shape: Geometry,
    kv_head: Array,
    head: Int[Array, " M"],
    exists: Bool[Array, " M"],
) -> Scoring:
    """How the scores of M rows are made, each of which belongs to a query head, if it exists."""
    factor: float | Array = shape.options.scale
    if operands.scales is not None:
        factor = factor * operands.scales[operands.layer[0], 0, kv_head]
    slopes = (
        None if operands.slopes is None else load(operands.slopes.at[head], exists, 0.0) * LOG2E
    )
    return Scoring(factor, shape.options.soft_cap, slopes)


def value_scale(operands: Operands, kv_head: Array) -> float | Array:
    """What the weighted sum of stored values is to be multiplied by."""
    if operands.scales is None:
        return 1.0
    return jnp.asarray(operands.scales[operands.layer[0], 1, kv_head])


def scores(
    q: Parts, keys: Parts, how: Scoring, distance: Int[Array, "#M C"]
) -> Float[Array, "M C"]:
    """Scores in base 2, unmasked. `distance` is the key's position minus the query's."""
    products = [dot(a, b, transpose=True) for a, b in zip(q, keys, strict=True)]
    result = sum(products[1:], products[0])
    if how.soft_cap is None:
        result = result * (how.factor * LOG2E)
    else:
        capped = jnp.tanh(result * (how.factor / how.soft_cap))
        result = capped * (how.soft_cap * LOG2E)
    if how.slopes is not None:
        result = result + how.slopes[:, None] * distance.astype(jnp.float32)
    return result


def gather(
    state: State, score: Float[Array, "M C"], mask: Bool[Array, "#M C"] | None, values: Parts
) -> State:
    """Add a stretch. `mask` says what each row sees; None when every row sees all of it."""
    if mask is not None:
        score = jnp.where(mask, score, -jnp.inf)
    top = jnp.maximum(state.top, score.max(1))
    # A row that has seen nothing yet has the top -inf, and -inf minus -inf is not 0.
    shift = top if mask is None else jnp.where(top == -jnp.inf, 0.0, top)
    weights = jnp.exp2(score - shift[:, None])
    keep = jnp.exp2(state.top - shift)
    out = tuple(
        old * keep[:, None] + dot(weights.astype(new.dtype), new)
        for old, new in zip(state.out, values, strict=True)
    )
    return State(out, top, state.total * keep + weights.sum(1))


def normalised(state: State, scale: float | Array) -> tuple[Parts, Float[Array, " M"]]:
    """Weighted means of the values, times `scale`, and log2 of the sums of exponentials.

    Zeros and -inf for rows that saw nothing.
    """
    divisor = jnp.where(state.total == 0, 1.0, state.total)
    out = tuple(x * (scale / divisor)[:, None] for x in state.out)
    return out, state.top + jnp.log2(state.total)
