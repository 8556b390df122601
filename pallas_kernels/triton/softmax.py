"""Online softmax in base 2: scores are multiplied by log2(e), because GPUs compute 2 ** x fast."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from pallas_kernels.triton.dialect import dot
from pallas_kernels.triton.heads import Parts, parts

LOG2E = math.log2(math.e)
LN2 = math.log(2.0)


class State(NamedTuple):
    """The softmax of M rows so far.

    Attributes:
        out: weighted sum of values, in parts [M, part].
        top: largest score; -inf before the first key.
        total: sum of weights.
    """

    out: Parts
    top: Float[Array, " M"]
    total: Float[Array, " M"]


def empty(rows: int, dim: int) -> State:
    """The state before the first key."""
    return State(
        tuple(jnp.zeros((rows, size), jnp.float32) for _, size in parts(dim)),
        jnp.full((rows,), -jnp.inf, jnp.float32),
        jnp.zeros((rows,), jnp.float32),
    )


def gather(
    state: State, score: Float[Array, "M C"], mask: Bool[Array, "#M C"] | None, values: Parts
) -> State:
    """Adds C tokens. `mask` is true where a row sees a token; None if every row sees all."""
    if mask is not None:
        score = jnp.where(mask, score, -jnp.inf)
    top = jnp.maximum(state.top, score.max(1))
    # The top of a row without keys so far is -inf, and -inf minus -inf is NaN.
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

    Zeros and -inf for rows without keys.
    """
    divisor = jnp.where(state.total == 0, 1.0, state.total)
    out = tuple(x * (scale / divisor)[:, None] for x in state.out)
    return out, state.top + jnp.log2(state.total)
