"""Stacks of matrices that a kernel receives whole, with the index of a layer."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jax_engine.weights.format import Matrix, Weight, WeightFormat


def index_of(layer: Int[Array, ""] | None) -> Int[Array, ""]:
    """A layer's index in its stack; a single matrix is the first of one."""
    return jnp.zeros((), jnp.int32) if layer is None else layer


def parts_of(matrix: Matrix) -> int:
    """Number of matrices whose panels alternate: gate and up."""
    return 2 if matrix.gated else 1


class InPanels(WeightFormat):
    """What formats for a CPU's kernels share.

    The kernels receive all layers and an index, so nothing is copied. They skip rows beyond
    `num_rows`.
    """

    indexed = True

    def batched_matmul(
        self,
        x: Float[Array, "X T in"],
        weight: Weight,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
    ) -> Float[Array, "X T out"]:
        """Multiplies matrix by matrix: all of all layers are one stack."""
        *stack, each, rows, size = weight.matrix.shape
        axes = len(stack) + 1
        arrays = {
            name: held.reshape(-1, *held.shape[axes:]) for name, held in weight.arrays.items()
        }
        count = len(next(iter(arrays.values())))
        matrix = weight.matrix._replace(shape=(count, rows, size))
        every, first = Weight(arrays, matrix=matrix, format=self), index_of(layer) * each
        dtype = self.result_dtype(x.dtype)

        def one(place: Array) -> Array:
            return self.matmul(x[place], every, first + place, num_rows, out_dtype=dtype)

        out: Array = lax.map(one, jnp.arange(len(x), dtype=jnp.int32))
        return out

    def result_dtype(self, dtype: jnp.dtype) -> jnp.dtype:
        """float32, as the kernels compute.

        Rounding each product to bfloat16 took a sixth of a prompt's time. Whatever stores or
        multiplies the result rounds it.
        """
        return jnp.dtype(jnp.float32)
