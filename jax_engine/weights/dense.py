"""Dense weights: one array [*stack, out, in], multiplied by XLA, or by a kernel of a GPU.

The kernel is for `batch_invariant`: it multiplies in one order for any number of rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from jax_engine.weights.format import (
    VALUES,
    ArraySpec,
    Matrix,
    Weight,
    WeightFormat,
    bias_of_rows,
    index_of,
)
from jax_engine.weights.tensor_source import TensorSource
from jax_engine.weights.transforms import Transform, Words
from pallas_kernels import batch_invariant, grouped_product

ROWS_OF_X, ROWS_OF_MATRIX = 2, 16  # the fewest that XLA multiplies as it does more, on a CPU
CONTRACT_LAST = (((1,), (1,)), ((), ()))  # x [T, in] with weight [out, in]
CONTRACT_EACH = (((2,), (2,)), ((0,), (0,)))  # x [X, T, in] with weight [X, out, in]


@dataclass(frozen=True)
class Dense(WeightFormat):
    """The unchanged matrix. The scan slices it, and a GPU fuses the slice into the product."""

    unchanged = True

    def arrays(self, matrix: Matrix) -> dict[str, ArraySpec]:
        return {VALUES: ArraySpec(matrix.shape, matrix.dtype)}

    def pack(self, values: np.ndarray, held: Mapping[str, np.ndarray], matrix: Matrix) -> None:
        held[VALUES][...] = values

    def load(
        self,
        source: TensorSource,
        made_of: Transform,
        words: Words,
        held: Mapping[str, np.ndarray],
        matrix: Matrix,
    ) -> None:
        """Reads the matrix straight into the array."""
        made_of.read_into(source, held[VALUES], words)

    def matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
        *,
        out_dtype: jnp.dtype,
    ) -> Float[Array, "T out"]:
        """Computes all rows: XLA cannot skip those beyond `num_rows`."""
        return self._multiply(x, self._one_layer(weight, layer), out_dtype)

    def _multiply(
        self, x: Float[Array, "T in"], values: Float[Array, "out in"], dtype: jnp.dtype
    ) -> Float[Array, "T out"]:
        """x @ values.T.

        XLA treats a single row as a vector, for which cuBLAS has no product of mixed types, so it
        converts the whole weight first: three times the traffic. Two rows avoid that.
        """
        return _product(_at_least(x, 1 if dtype == x.dtype else 2), values, dtype)[: len(x)]

    def grouped_matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        bias: Float[Array, "X out"] | None,
        starts: Int[Array, " starts"],
        layer: Int[Array, ""] | None,
    ) -> Float[Array, "T out"]:
        values, dtype = self._one_layer(weight, layer), self.result_dtype(x.dtype)
        out = grouped_product(x, values, starts, dtype=dtype)
        return out if bias is None else out + bias_of_rows(bias, starts, len(x)).astype(dtype)

    def batched_matmul(
        self,
        x: Float[Array, "X T in"],
        weight: Weight,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
    ) -> Float[Array, "X T out"]:
        values, dtype = self._one_layer(weight, layer), self.result_dtype(x.dtype)
        out: Array = lax.dot_general(x, values, CONTRACT_EACH, preferred_element_type=dtype)
        return out

    def _one_layer(self, weight: Weight, layer: Int[Array, ""] | None) -> Float[Array, "..."]:
        """The layer's values, which the scan has sliced."""
        del layer
        return weight.arrays[VALUES]

    def take_rows(self, weight: Weight, ids: Int[Array, " T"]) -> Float[Array, "T in"]:
        return weight.arrays[VALUES].at[ids].get(mode="clip")


@dataclass(frozen=True)
class IndexedDense(Dense):
    """`Dense` for a CPU without kernels.

    XLA's CPU backend would copy each slice of the scan, which doubles the memory traffic of
    decoding. So the stack stays whole, and a product indexes it.
    """

    indexed = True

    def _multiply(
        self, x: Float[Array, "T in"], values: Float[Array, "out in"], dtype: jnp.dtype
    ) -> Float[Array, "T out"]:
        """A row's bits are the same for any number of rows.

        XLA treats a single row as a vector, and a matrix of a few rows in another way than larger
        ones; each adds in an order of its own. So both get rows of zeros.
        """
        out = _product(_at_least(x, ROWS_OF_X), _at_least(values, ROWS_OF_MATRIX), dtype)
        return out[: len(x), : len(values)]

    def batched_matmul(
        self,
        x: Float[Array, "X T in"],
        weight: Weight,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
    ) -> Float[Array, "X T out"]:
        out: Array = super().batched_matmul(_at_least(x, ROWS_OF_X, 1), weight, layer, num_rows)
        return out[:, : x.shape[1]]

    def _one_layer(self, weight: Weight, layer: Int[Array, ""] | None) -> Float[Array, "..."]:
        """The layer's part of the stack, if there is a stack."""
        values = weight.arrays[VALUES]
        if layer is None:
            return values
        one: Array = lax.dynamic_index_in_dim(values, layer, keepdims=False)
        return one

    def result_dtype(self, dtype: jnp.dtype) -> jnp.dtype:
        """float32, in which a CPU computes products anyway; see `InPanels.result_dtype`."""
        return jnp.dtype(jnp.float32)


def _at_least(x: Float[Array, "..."], rows: int, axis: int = 0) -> Float[Array, "..."]:
    """The array, with rows of zeros behind its own if it has fewer than `rows`."""
    missing = max(0, rows - x.shape[axis])
    return jnp.pad(x, [(0, missing * (at == axis)) for at in range(x.ndim)])


def _product(
    x: Float[Array, "T in"], values: Float[Array, "out in"], dtype: jnp.dtype
) -> Float[Array, "T out"]:
    out: Array = lax.dot_general(x, values, CONTRACT_LAST, preferred_element_type=dtype)
    return out


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
