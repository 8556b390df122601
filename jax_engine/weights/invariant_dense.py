"""Dense weights of a GPU, multiplied in one order for any number of rows: `batch_invariant`."""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jax_engine.weights.dense import Dense
from jax_engine.weights.format import VALUES, Weight, WeightFormat
from jax_engine.weights.stacks import index_of
from pallas_kernels import batch_invariant


@dataclass(frozen=True)
class InvariantDense(Dense):
    """`Dense` with a kernel that receives the stack and a layer's index, so that nothing is copied.

    It has no products by experts, and none of matrix by matrix.
    """

    indexed = True

    def matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
        *,
        out_dtype: jnp.dtype,
    ) -> Float[Array, "T out"]:
        """Computes all rows."""
        values = weight.arrays[VALUES]
        stack = values[None] if layer is None else values
        return batch_invariant.matmul(x, stack, index_of(layer), dtype=out_dtype)

    grouped_matmul = WeightFormat.grouped_matmul
    batched_matmul = WeightFormat.batched_matmul
