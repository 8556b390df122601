"""Operations of a GPU that add in one order for any number of rows: `batch_invariant`.

`xla.py` says what each of them does. The others of the table add nothing, or are in no model that
the option takes.
"""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pallas_kernels import batch_invariant


def add_rms_norm(
    x: Float[Array, "T E"],
    residual: Float[Array, "T E"],
    weight: Float[Array, " E"],
    num_rows: Int[Array, ""],
    *,
    eps: float,
) -> tuple[Float[Array, "T E"], Float[Array, "T E"]]:
    """s / rms(s) * weight and s, where s = x + residual, in residual's dtype."""
    return add_layer_norm(x, residual, weight, None, num_rows, eps=eps, kind="rms")


def add_layer_norm(
    x: Float[Array, "T E"],
    residual: Float[Array, "T E"],
    weight: Float[Array, " E"],
    bias: Float[Array, " E"] | None,
    num_rows: Int[Array, ""],
    *,
    eps: float,
    kind: Literal["rms", "layer"] = "layer",
) -> tuple[Float[Array, "T E"], Float[Array, "T E"]]:
    """The layer norm of s = x + residual, and s, in residual's dtype."""
    del num_rows
    own = None if bias is None else bias[None]
    normed, total = batch_invariant.norm(
        x, weight[None], own, residual=residual, kind=kind, eps=eps, dtype=residual.dtype
    )
    assert total is not None
    return normed, total


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
    return batch_invariant.norm(x, weight[None], kind="rms", eps=eps, dtype=dtype)[0]


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
    own = None if bias is None else bias[None]
    return batch_invariant.norm(x, weight[None], own, kind="layer", eps=eps, dtype=dtype)[0]


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
    size = x.shape[1] * x.shape[2] if whole else x.shape[2]
    own = None if bias is None else bias.reshape(-1, size)
    rows, scales = x.reshape(-1, size), weight.reshape(-1, size)
    normed, _ = batch_invariant.norm(rows, scales, own, kind=kind, eps=eps, dtype=x.dtype)
    return normed.reshape(x.shape)


logsumexp = batch_invariant.logsumexp
