"""Merges attention over disjoint parts of one context (split KV, as in flash decoding)."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def merge_partials(
    out: Float[Array, "P ... D"], lse: Float[Array, "P ..."]
) -> tuple[Float[Array, "... D"], Float[Array, "..."]]:
    """Merges P partial attention results into the result over the union of their keys.

    Each part is softmax attention over its own keys, with the natural logarithm of the sum of the
    exponentials of its scores. A part without keys has `lse` -inf, and its `out` is ignored. If no
    part has keys, the result is zeros and -inf. The result is again a part, so the grouping of
    merges does not matter. The merge is computed in float32.

    Args:
        out: partial outputs.
        lse: log-sum-exp of each part's scores.

    Returns:
        The merged output in `out`'s dtype and the merged log-sum-exp in float32.

    Raises:
        ValueError: the shapes do not belong together.
    """
    if out.shape[:-1] != lse.shape or out.ndim < 2 or out.shape[0] == 0:
        raise ValueError(
            f"expected out [P, ..., D] and lse [P, ...], P >= 1: {out.shape=} {lse.shape=}"
        )
    scores = lse.astype(jnp.float32)
    top = scores.max(0)
    # -inf minus -inf is NaN: scores are shifted by zero where every part is empty.
    weight = jnp.exp(scores - jnp.where(jnp.isneginf(top), 0.0, top))
    total = weight.sum(0)
    parts = jnp.where(weight[..., None] > 0, out.astype(jnp.float32), 0.0) * weight[..., None]
    merged = parts.sum(0) / jnp.where(total == 0, 1.0, total)[..., None]
    return merged.astype(out.dtype), top + jnp.log(jnp.where(total == 0, 1.0, total))
