"""Norms, and the logarithm of a sum of exponentials: one program for each row.

How a row is added up follows from its length alone. The number of rows is the number of programs.
"""

from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from pallas_kernels.triton.dialect import (
    launch,
    load,
    next_power_of_two,
    program_id,
    shape_of,
    store,
)

# Numbers of a row that a warp holds in registers, and of a step through a row of logits.
NUMBERS_PER_WARP = 1024
STEP = 4096
MOST_WARPS = 16
Kind = Literal["rms", "layer"]


@partial(jax.jit, static_argnames=("kind", "eps", "dtype", "interpret"))
def norm(
    x: Float[Array, "R E"],
    residual: Float[Array, "R E"] | None,
    weight: Float[Array, "W E"],
    bias: Float[Array, "W E"] | None,
    *,
    kind: Kind,
    eps: float,
    dtype: Any,
    interpret: bool,
) -> tuple[Float[Array, "R E"], Float[Array, "R E"] | None]:
    """The norm of s = x + residual in `dtype`, computed in float32; and s in residual's dtype.

    Row r has the scale and bias r modulo W. Without a residual s is x, and not returned.
    """
    rows, size = x.shape
    total = None if residual is None else shape_of(residual.shape, residual.dtype)
    found: tuple[Array, Array | None] = launch(
        partial(_norm, kind=kind, eps=eps),
        (x, residual, weight, bias),
        (shape_of((rows, size), dtype), total),
        name="invariant_norm",
        grid=(rows,),
        num_warps=min(max(next_power_of_two(size) // NUMBERS_PER_WARP, 1), MOST_WARPS),
        num_stages=1,
        interpret=interpret,
    )
    return found


def _norm(
    x: Array,
    residual: Array | None,
    weight: Array,
    bias: Array | None,
    result: tuple[Array, Array | None],
    *,
    kind: Kind,
    eps: float,
) -> None:
    row, size = program_id(0), x.shape[1]
    column = jnp.arange(next_power_of_two(size), dtype=jnp.int32)
    exists = column < size
    own = lax.rem(row, weight.shape[0])
    wide = load(x.at[row, column], exists, jnp.zeros((), x.dtype))
    normed, total = result
    if residual is not None and total is not None:
        held = load(residual.at[row, column], exists, jnp.zeros((), residual.dtype))
        wide = (wide + held).astype(residual.dtype)
        store(total.at[row, column], wide, exists)
    wide = wide.astype(jnp.float32)
    if kind == "layer":
        wide = jnp.where(exists, wide - wide.sum() / size, 0.0)
    wide = wide * lax.rsqrt((wide * wide).sum() / size + eps)
    wide = wide * load(weight.at[own, column], exists, 0.0)
    if bias is not None:
        wide = wide + load(bias.at[own, column], exists, 0.0)
    store(normed.at[row, column], wide.astype(normed.dtype), exists)


@partial(jax.jit, static_argnames="interpret")
def logsumexp(x: Float[Array, "R V"], *, interpret: bool) -> Float[Array, " R"]:
    """The logarithm of each row's sum of exp(x)."""
    found: Array = launch(
        _logsumexp,
        (x,),
        shape_of((len(x),), jnp.float32),
        name="invariant_logsumexp",
        grid=(len(x),),
        num_warps=STEP // NUMBERS_PER_WARP,
        num_stages=1,
        interpret=interpret,
    )
    return found


def _logsumexp(x: Array, result: Array) -> None:
    row, size = program_id(0), x.shape[1]
    steps = -(-size // STEP)

    def read(i: Array) -> Array:
        column = i * STEP + jnp.arange(STEP, dtype=jnp.int32)
        return load(x.at[row, column], column < size, -jnp.inf)

    # Maxima are exact in any order. Each column of the steps has a sum, and those are added last.
    lowest = jnp.full((STEP,), -jnp.inf, jnp.float32)
    top = lax.fori_loop(0, steps, lambda i, top: jnp.maximum(top, read(i)), lowest).max()
    shift = jnp.where(jnp.abs(top) == jnp.inf, 0.0, top)
    nothing = jnp.zeros((STEP,), jnp.float32)
    total = lax.fori_loop(0, steps, lambda i, sums: sums + jnp.exp(read(i) - shift), nothing).sum()
    result[row] = shift + jnp.log(total)
