"""W8A8: int8 weights with a scale for each row, and activations rounded to int8 for each token.

Checkpoints are int-quantized ones of compressed-tensors, with the smoothing of SmoothQuant (Xiao et
al., 2022) folded in or not. `W8A8Panels` is for the CPU's kernels. `W8A8Dense` is for XLA: codes
[*stack, out, in] as in checkpoints, multiplied in int8 with sums in int32. Both have the same
results to the bit: sums of whole numbers, times a row's scale, times a weight's.
"""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Float32, Int, Int8

from jax_engine.errors import WeightsError
from jax_engine.weights.code_sources import parts_of_rows, read_rows
from jax_engine.weights.codes import INT8, Kind
from jax_engine.weights.dense import CONTRACT_EACH, CONTRACT_LAST
from jax_engine.weights.format import (
    ArraySpec,
    Matrix,
    Weight,
    WeightFormat,
    bias_of_rows,
)
from jax_engine.weights.panels import InPanels, parts_of
from jax_engine.weights.tensor_source import CodesSource, TensorSource
from jax_engine.weights.transforms import Transform, Words

if TYPE_CHECKING:  # needs Numba, which may be missing
    from cpu_kernels.linear.weights import Weights

CODES, SCALES = "codes", "scales"
# A row of smaller numbers counts as zeros, as in cpu_kernels/linear/w8a8_rows.py, which says why.
LEAST = 2.0**-118
LARGEST = 127  # codes of rows of x are at most so far from 0
# The longest row whose products are sure to fit into int32: 132,104 numbers.
MOST = (2**31 - 1) // (LARGEST * 128)


def is_w8a8(kind: Kind, size: int) -> bool:
    """Whether these formats hold rows of `size` columns that are coded in this way."""
    return has_row_scales(kind, size) and kind.activations == INT8


def has_row_scales(kind: Kind, size: int) -> bool:
    """Whether rows of `size` columns are whole numbers with one scale each."""
    return kind.code == INT8 and kind.groups(size) == 1 and not kind.outer and not kind.minimums


def check_size(matrix: Matrix) -> None:
    """Refuses a matrix whose products may not fit into int32."""
    if matrix.shape[-1] > MOST:
        raise WeightsError(
            f"a W8A8 matrix {list(matrix.shape)} has rows of {matrix.shape[-1]} numbers; their "
            f"products are summed in int32, so rows may have at most {MOST}"
        )


def _has_codes(source: CodesSource, made_of: Transform, words: Words, matrix: Matrix) -> bool:
    """Whether the checkpoint has a matrix in codes that need no other form here."""
    parts = parts_of_rows(source, made_of, matrix.shape, words)
    return parts is not None and all(has_row_scales(kind, matrix.shape[-1]) for kind, _ in parts)


class W8A8(WeightFormat):
    """What both formats share: how codes and scales come from numbers, or from rows of codes."""

    def pack(self, values: np.ndarray, held: Mapping[str, np.ndarray], matrix: Matrix) -> None:
        """Rounds numbers: each row's largest magnitude is 127 steps."""
        wide = values.astype(np.float32, copy=False)
        largest = np.abs(wide).max(axis=-1, initial=0)
        scales = np.where(largest >= LEAST, largest / np.float32(LARGEST), np.float32(1))
        self.store(np.rint(wide / scales[..., None]).astype(np.int8), scales, held, matrix)

    def load(
        self,
        source: TensorSource,
        made_of: Transform,
        words: Words,
        held: Mapping[str, np.ndarray],
        matrix: Matrix,
    ) -> None:
        """Reads rows of codes that have a scale each, or rounds what the checkpoint holds."""
        if isinstance(source, CodesSource) and _has_codes(source, made_of, words, matrix):
            rows = read_rows(source, made_of, words, matrix.shape, source.kinds)
            self.pack_rows(rows, held, matrix)
            return
        values = np.empty(matrix.shape, np.float32)
        made_of.read_into(source, values, words)
        self.pack(values, held, matrix)

    def pack_rows(self, rows: np.ndarray, held: Mapping[str, np.ndarray], matrix: Matrix) -> None:
        """Stores rows of codes [*stack, out], records as in `codes.py`, of a kind that `is_w8a8`.

        Threads may call it for different layers.
        """
        codes = np.ascontiguousarray(rows["codes"]).view(np.int8)
        self.store(codes, rows["scales"][..., 0], held, matrix)

    @abc.abstractmethod
    def store(
        self,
        codes: np.ndarray,
        scales: np.ndarray,
        held: Mapping[str, np.ndarray],
        matrix: Matrix,
    ) -> None:
        """Stores codes int8 [*stack, out, in] and scales [*stack, out] in the arrays."""

    def result_dtype(self, dtype: jnp.dtype) -> jnp.dtype:
        """float32, which the scaled sums are."""
        return jnp.dtype(jnp.float32)


@dataclass(frozen=True)
class W8A8Panels(InPanels, W8A8):
    """Codes [*stack, panels, words, columns] and scales [*stack, panels, columns of a panel]."""

    def arrays(self, matrix: Matrix) -> dict[str, ArraySpec]:
        from cpu_kernels.linear.w8a8_weights import codes_shape, scales_shape

        check_size(matrix)
        *stack, rows, size = matrix.shape
        codes = (*stack, *codes_shape(rows, size, parts_of(matrix)))
        scales = (*stack, *scales_shape(rows, parts_of(matrix)))
        return {
            CODES: ArraySpec(codes, jnp.dtype(jnp.uint8)),
            SCALES: ArraySpec(scales, jnp.dtype(jnp.float32)),
        }

    def store(
        self,
        codes: np.ndarray,
        scales: np.ndarray,
        held: Mapping[str, np.ndarray],
        matrix: Matrix,
    ) -> None:
        from cpu_kernels.linear.w8a8_weights import pack_codes, pack_scales

        pack_codes(codes, held[CODES], parts=parts_of(matrix))
        pack_scales(scales, held[SCALES], parts=parts_of(matrix))

    def for_kernel(self, weight: Weight) -> "Weights":
        from cpu_kernels.linear.w8a8_weights import W8A8Weights

        return W8A8Weights(*_arrays(weight))

    def take_rows(self, weight: Weight, ids: Int[Array, " T"]) -> Float[Array, "T in"]:
        from cpu_kernels.linear.panels import take_rows

        codes, scales = _arrays(weight)
        found = take_rows(codes, ids, weight.matrix.shape[-1]) ^ jnp.uint8(128)
        steps = lax.bitcast_convert_type(found, jnp.int8).astype(jnp.float32)
        ids = jnp.clip(ids, 0, weight.matrix.shape[-2] - 1)
        return (steps * scales.reshape(-1)[ids, None]).astype(weight.matrix.dtype)


def _arrays(weight: Weight) -> tuple[Array, Array]:
    return weight.arrays[CODES], weight.arrays[SCALES]


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
    """Codes and a scale for each row; see `cpu_kernels/linear/w8a8_rows.py`.

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
