"""Operations that XLA compiles for every device."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jax_engine.operations.row_sums import apart, row_sums
from jax_engine.operations.whole_vectors import in_whole_vectors
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
    return _scaled(normalised(x, kind="layer", eps=eps), weight, bias).astype(dtype)


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
    rows = x.reshape(len(x), -1) if whole else x
    normed = normalised(rows, kind=kind, eps=eps).reshape(x.shape)
    return _scaled(normed, weight, bias).astype(x.dtype)


def softmax(x: Float[Array, "R V"]) -> Float[Array, "R V"]:
    """The softmax of each row."""
    weights = apart(in_whole_vectors(jnp.exp, apart(x - jnp.max(x, axis=-1, keepdims=True))))
    return weights / row_sums(weights)


def logsumexp(x: Float[Array, "R V"]) -> Float[Array, "R"]:
    """The logarithm of each row's sum of exp(x)."""
    top = jnp.max(x, axis=1, keepdims=True)
    top = jnp.where(jnp.isfinite(top), top, 0.0)
    sums = row_sums(in_whole_vectors(jnp.exp, apart(x - top)))
    return (top + in_whole_vectors(jnp.log, sums))[:, 0]


def normalised(
    x: Float[Array, "*shape"],
    *,
    kind: Literal["rms", "layer"],
    eps: float,
) -> Float[Array, "*shape"]:
    """Rows divided by their root mean square, in float32; of kind "layer" after their mean is 0."""
    wide, size = x.astype(jnp.float32), x.shape[-1]
    if kind == "layer":
        wide = apart(wide - apart(row_sums(wide) / size))
    mean = apart(row_sums(jnp.square(wide)) / size)
    return wide * jax.lax.rsqrt(apart(mean + eps))


def _scaled(
    x: Float[Array, "*shape"], weight: Float[Array, "..."], bias: Float[Array, "..."] | None
) -> Float[Array, "*shape"]:
    return x * weight if bias is None else apart(x * weight) + bias
