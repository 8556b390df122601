"""Operations that XLA compiles for every device."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jax_engine.sampling.draw import draw as draw


def add_rms_norm(
    x: Float[Array, "T E"],
    residual: Float[Array, "T E"],
    weight: Float[Array, " E"],
    num_rows: Int[Array, ""],
    *,
    eps: float,
) -> tuple[Float[Array, "T E"], Float[Array, "T E"]]:
    """s / rms(s) * weight and s, where s = x + residual, in residual's dtype.

    Args:
        x: what the part before returned.
        weight: the scale, in float32.
        num_rows: how many rows are wanted. XLA computes all of them.
    """
    residual = (x + residual).astype(residual.dtype)
    return rms_norm(residual, weight, num_rows, eps=eps, dtype=residual.dtype), residual


def rms_norm(
    x: Float[Array, "T E"],
    weight: Float[Array, " E"],
    num_rows: Int[Array, ""],
    *,
    eps: float,
    dtype: jnp.dtype,
) -> Float[Array, "T E"]:
    """x / rms(x) * weight in `dtype`, computed in float32."""
    del num_rows
    return (normalised(x, kind="rms", eps=eps) * weight).astype(dtype)


def add_layer_norm(
    x: Float[Array, "T E"],
    residual: Float[Array, "T E"],
    weight: Float[Array, " E"],
    bias: Float[Array, " E"] | None,
    num_rows: Int[Array, ""],
    *,
    eps: float,
) -> tuple[Float[Array, "T E"], Float[Array, "T E"]]:
    """The layer norm of s = x + residual, and s; see `add_rms_norm`."""
    residual = (x + residual).astype(residual.dtype)
    normed = layer_norm(residual, weight, bias, num_rows, eps=eps, dtype=residual.dtype)
    return normed, residual


def layer_norm(
    x: Float[Array, "T E"],
    weight: Float[Array, " E"],
    bias: Float[Array, " E"] | None,
    num_rows: Int[Array, ""],
    *,
    eps: float,
    dtype: jnp.dtype,
) -> Float[Array, "T E"]:
    """(x - mean(x)) / deviation(x) * weight + bias in `dtype`, computed in float32."""
    del num_rows
    normed = normalised(x, kind="layer", eps=eps) * weight
    return (normed if bias is None else normed + bias).astype(dtype)


def head_norm(
    x: Float[Array, "T heads D"],
    weight: Float[Array, "heads D"],
    bias: Float[Array, "heads D"] | None,
    num_tokens: Int[Array, ""],
    *,
    kind: Literal["rms", "layer"],
    whole: bool,
    eps: float,
) -> Float[Array, "T heads D"]:
    """The norm of each head, or one over all heads of a token, in x's dtype."""
    del num_tokens
    axes = (-2, -1) if whole else (-1,)
    normed = normalised(x, kind=kind, eps=eps, axes=axes) * weight
    return (normed if bias is None else normed + bias).astype(x.dtype)


def softmax(x: Float[Array, "R V"]) -> Float[Array, "R V"]:
    """The softmax of each row."""
    weights: Array = jax.nn.softmax(x)
    return weights


def logsumexp(x: Float[Array, "R V"]) -> Float[Array, "R"]:
    """The logarithm of each row's sum of exp(x)."""
    logs: Array = jax.nn.logsumexp(x, axis=1)
    return logs


def normalised(
    x: Float[Array, "*shape"],
    *,
    kind: Literal["rms", "layer"],
    eps: float,
    axes: tuple[int, ...] = (-1,),
) -> Float[Array, "*shape"]:
    """x divided by its root mean square, in float32; of kind "layer" after its mean is 0."""
    wide = x.astype(jnp.float32)
    if kind == "layer":
        wide = wide - jnp.mean(wide, axis=axes, keepdims=True)
    return wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=axes, keepdims=True) + eps)
