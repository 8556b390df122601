"""W8A8 by XLA: codes [*stack, out, in] as in checkpoints, multiplied in int8 with sums in int32."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Float32, Int, Int8

from jax_engine.weights.dense import CONTRACT_EACH, CONTRACT_LAST
from jax_engine.weights.format import ArraySpec, Matrix, Weight, bias_of_rows
from jax_engine.weights.w8a8 import CODES, LARGEST, LEAST, SCALES, W8A8, check_size

# x [T, in], sorted by expert, with weights [X, out, in].
BY_EXPERT = lax.RaggedDotDimensionNumbers(
    dot_dimension_numbers=(((1,), (2,)), ((), ())),
    lhs_ragged_dimensions=(0,),
    rhs_group_dimensions=(0,),
)


@dataclass(frozen=True)
class W8A8Dense(W8A8):
    """Two arrays: codes int8 [*stack, out, in] and scales [*stack, out]. The scan slices them."""

    def arrays(self, matrix: Matrix) -> dict[str, ArraySpec]:
        check_size(matrix)
        return {
            CODES: ArraySpec(matrix.shape, jnp.dtype(jnp.int8)),
            SCALES: ArraySpec(matrix.shape[:-1], jnp.dtype(jnp.float32)),
        }

    def store(
        self,
        codes: np.ndarray,
        scales: np.ndarray,
        held: Mapping[str, np.ndarray],
        matrix: Matrix,
    ) -> None:
        held[CODES][...] = codes
        held[SCALES][...] = scales

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
        codes, scales = self._one_layer(weight, layer)
        rows, steps = round_rows(x)
        sums = lax.dot_general(rows, codes, CONTRACT_LAST, preferred_element_type=jnp.int32)
        return (sums.astype(jnp.float32) * steps * scales).astype(out_dtype)

    def grouped_matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        bias: Float[Array, "X out"] | None,
        starts: Int[Array, " starts"],
        layer: Int[Array, ""] | None,
    ) -> Float[Array, "T out"]:
        codes, scales = self._one_layer(weight, layer)
        rows, steps = round_rows(x)
        sums = lax.ragged_dot_general(
            rows, codes, jnp.diff(starts), BY_EXPERT, preferred_element_type=jnp.int32
        )
        out: Array = sums.astype(jnp.float32) * steps * bias_of_rows(scales, starts, len(x))
        return out if bias is None else out + bias_of_rows(bias, starts, len(x)).astype(out.dtype)

    def batched_matmul(
        self,
        x: Float[Array, "X T in"],
        weight: Weight,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
    ) -> Float[Array, "X T out"]:
        codes, scales = self._one_layer(weight, layer)
        rows, steps = round_rows(x)
        sums = lax.dot_general(rows, codes, CONTRACT_EACH, preferred_element_type=jnp.int32)
        out: Array = sums.astype(jnp.float32) * steps * scales[:, None]
        return out

    def take_rows(self, weight: Weight, ids: Int[Array, " T"]) -> Float[Array, "T in"]:
        codes = weight.arrays[CODES].at[ids].get(mode="clip").astype(jnp.float32)
        scales = weight.arrays[SCALES].at[ids].get(mode="clip")
        return (codes * scales[:, None]).astype(weight.matrix.dtype)

    def _one_layer(self, weight: Weight, layer: Int[Array, ""] | None) -> tuple[Array, Array]:
        """The layer's codes and scales, which the scan has sliced."""
        del layer
        return weight.arrays[CODES], weight.arrays[SCALES]


@dataclass(frozen=True)
class IndexedW8A8Dense(W8A8Dense):
    """`W8A8Dense` for a CPU without kernels, which would copy slices; see `IndexedDense`."""

    indexed = True

    def _one_layer(self, weight: Weight, layer: Int[Array, ""] | None) -> tuple[Array, Array]:
        codes, scales = weight.arrays[CODES], weight.arrays[SCALES]
        if layer is None:
            return codes, scales
        one = lax.dynamic_index_in_dim(codes, layer, keepdims=False)
        return one, lax.dynamic_index_in_dim(scales, layer, keepdims=False)


def round_rows(
    x: Float[Array, "*T in"],
) -> tuple[Int8[Array, "*T in"], Float32[Array, "*T one"]]:
    """Codes and a scale for each row; see `cpu_kernels/w8a8/rounding.py`.

    XLA turns a division by a constant, or by one number for many, into a multiplication by its
    reciprocal, which rounds otherwise. So divisors depend on a comparison that XLA cannot know.
    """
    x = x.astype(jnp.float32)
    sizes, one = jnp.abs(x), jnp.float32(1)
    largest = sizes.max(axis=-1, keepdims=True)
    is_zero = largest < LEAST
    scales = jnp.where(is_zero, one, largest) / jnp.where(is_zero, one, jnp.float32(LARGEST))
    quotients = x / jnp.where(sizes <= largest, scales, one)
    return jnp.round(quotients).astype(jnp.int8), scales
