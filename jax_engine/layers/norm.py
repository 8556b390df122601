"""Norms: of the residual stream, of a part's output, and of queries and keys."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from jax_engine.layers.batch import Batch
from jax_engine.model_spec import HeadNormSpec, NormSpec
from jax_engine.operations import device_operations


class Norm(nnx.Module):  # type: ignore[misc]
    """A root-mean-square norm or a layer norm over the last axis.

    Attributes:
        weight: [*stack, E], the scale, in float32: Gemma's 1 + w is not exact in bfloat16.
        bias: [*stack, E] in float32, or None.
    """

    def __init__(self, spec: NormSpec, size: int, *, stack: tuple[int, ...] = ()):
        self.spec = spec
        self.weight = nnx.Param(jnp.ones((*stack, size), jnp.float32))
        self.bias = nnx.Param(jnp.zeros((*stack, size), jnp.float32)) if spec.bias else None

    @jax.named_scope("norm")
    def add(
        self, x: Float[Array, "T E"], residual: Float[Array, "T E"], batch: Batch
    ) -> tuple[Float[Array, "T E"], Float[Array, "T E"]]:
        """The norm of s = x + residual, and s, both in residual's dtype."""
        operations, eps = device_operations(batch.batch_invariant), self.spec.eps
        weight, bias = self.weight[...], self._bias()
        both: tuple[Array, Array]
        if self.spec.kind == "rms":
            both = operations.add_rms_norm(x, residual, weight, batch.num_tokens, eps=eps)
        else:
            both = operations.add_layer_norm(x, residual, weight, bias, batch.num_tokens, eps=eps)
        return both

    @jax.named_scope("norm")
    def __call__(
        self, x: Float[Array, "T E"], batch: Batch, dtype: jnp.dtype
    ) -> Float[Array, "T E"]:
        """The norm of x alone, in `dtype`."""
        operations, eps = device_operations(batch.batch_invariant), self.spec.eps
        weight, bias = self.weight[...], self._bias()
        normed: Array
        if self.spec.kind == "rms":
            normed = operations.rms_norm(x, weight, batch.num_tokens, eps=eps, dtype=dtype)
        else:
            normed = operations.layer_norm(x, weight, bias, batch.num_tokens, eps=eps, dtype=dtype)
        return normed

    def _bias(self) -> Float[Array, " E"] | None:
        return None if self.bias is None else self.bias[...]


class HeadNorm(nnx.Module):  # type: ignore[misc]
    """A norm of queries or keys: each head's own, or one over all heads together.

    Attributes:
        weight: [*stack, heads, D], the scale, in float32.
        bias: [*stack, heads, D] in float32, or None.
    """

    def __init__(
        self, spec: HeadNormSpec, heads: int, head_dim: int, *, stack: tuple[int, ...] = ()
    ):
        self.spec = spec
        shape = (*stack, heads, head_dim)
        self.weight = nnx.Param(jnp.ones(shape, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(shape, jnp.float32)) if spec.bias else None

    @jax.named_scope("head_norm")
    def __call__(self, x: Float[Array, "T heads D"], batch: Batch) -> Float[Array, "T heads D"]:
        """Computed in float32, returned in x's dtype."""
        spec, bias = self.spec, None if self.bias is None else self.bias[...]
        normed: Array = device_operations(batch.batch_invariant).head_norm(
            x,
            self.weight[...],
            bias,
            batch.num_tokens,
            kind=spec.kind,
            whole=spec.whole,
            eps=spec.eps,
        )
        return normed
