"""Panels: weights packed in the order in which the CPU's kernels read them.

`Panels` hold numbers, `CodedPanels` the codes of quantised weights. The products of both, and of
`W8A8Panels` (`w8a8.py`), are those of `InPanels`.
"""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from jax_engine.model_spec import Activation
from jax_engine.weights.code_sources import ORDER, RowsOfCodes
from jax_engine.weights.codes import Kind
from jax_engine.weights.format import (
    ArraySpec,
    Matrix,
    Weight,
    WeightFormat,
    bias_of_rows,
    index_of,
)
from jax_engine.weights.low_rank import LowRank, expand_of

if TYPE_CHECKING:  # needs Numba, which may be missing
    from cpu_kernels.linear.weights import Weights

PANELS = "panels"
CODED_PANELS, PLACES = "panels", "places"
Part = tuple[Kind, int]


def parts_of(matrix: Matrix) -> int:
    """Number of matrices whose panels alternate: gate and up."""
    return 2 if matrix.gated else 1


class InPanels(WeightFormat):
    """What formats for a CPU's kernels share.

    The kernels receive all layers and an index, so nothing is copied. They skip rows beyond
    `num_rows`, and compute the gate of a gated matrix, whose panels alternate between its halves.
    """

    indexed = True

    @abc.abstractmethod
    def for_kernel(self, weight: Weight) -> "Weights":
        """The weight as the kernels take it."""

    def in_order(
        self, x: Float[Array, "T in"], weight: Weight, layer: Int[Array, ""] | None
    ) -> Float[Array, "T in"]:
        """x with its columns in the order of the weight's."""
        return x

    def matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
        *,
        out_dtype: jnp.dtype,
    ) -> Float[Array, "T out"]:
        """Not of gated matrices, whose halves alternate: they are multiplied with their gate."""
        from cpu_kernels.linear.linear import linear

        assert not weight.matrix.gated
        x, width = self.in_order(x, weight, layer), weight.matrix.shape[-2]
        out = linear(x, self.for_kernel(weight), width=width, layer=layer, num_rows=num_rows)
        return out.astype(out_dtype)

    def grouped_matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        bias: Float[Array, "X out"] | None,
        starts: Int[Array, " starts"],
        layer: Int[Array, ""] | None,
    ) -> Float[Array, "T out"]:
        """One call of a kernel. An expert without rows is not read."""
        from cpu_kernels.linear.linear import grouped_linear

        held, width = self.for_kernel(weight), weight.matrix.shape[-2]
        out = grouped_linear(x, held, starts, width=width, layer=index_of(layer))
        return out if bias is None else out + bias_of_rows(bias, starts, len(x)).astype(out.dtype)

    def gated_matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        bias: Float[Array, " out"] | None,
        activation: Activation,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
        low: LowRank | None = None,
    ) -> Float[Array, "T F"]:
        """Computes the gate in the same kernel."""
        from cpu_kernels.linear.linear import gated_linear

        options = _gated_options(x, weight, activation, layer, low)
        count = jnp.int32(x.shape[0]) if num_rows is None else num_rows
        x = self.in_order(x, weight, layer)
        return gated_linear(x, self.for_kernel(weight), bias, num_rows=count, **options)

    def grouped_gated_matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        bias: Float[Array, "X out"] | None,
        activation: Activation,
        starts: Int[Array, " starts"],
        layer: Int[Array, ""] | None,
        low: LowRank | None = None,
    ) -> Float[Array, "T F"]:
        from cpu_kernels.linear.linear import grouped_gated_linear

        options = _gated_options(x, weight, activation, layer, low)
        return grouped_gated_linear(x, self.for_kernel(weight), bias, starts, **options)

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


def _gated_options(
    x: Array, weight: Weight, activation: Activation, layer: Array | None, low: LowRank | None
) -> dict[str, Any]:
    return {
        "width": weight.matrix.shape[-2] // 2,
        "layer": index_of(layer),
        "activation": activation,
        "dtype": x.dtype,
        "expand": None if low is None else expand_of(low),
    }


@dataclass(frozen=True)
class Panels(InPanels):
    """One array [*stack, panels, words, columns]; see cpu_kernels/linear.

    Its dtype is float32, bfloat16 or float16.
    """

    def arrays(self, matrix: Matrix) -> dict[str, ArraySpec]:
        from cpu_kernels.linear.panels import panel_shape

        *stack, rows, size = matrix.shape
        shape = (*stack, *panel_shape(rows, size, matrix.dtype, parts_of(matrix)))
        return {PANELS: ArraySpec(shape, matrix.dtype)}

    def pack(self, values: np.ndarray, held: Mapping[str, np.ndarray], matrix: Matrix) -> None:
        from cpu_kernels.linear.panels import pack_panels

        pack_panels(values, held[PANELS], parts=parts_of(matrix))

    def for_kernel(self, weight: Weight) -> "Weights":
        from cpu_kernels.linear.float_weights import FloatWeights

        return FloatWeights(weight.arrays[PANELS], weight.matrix.leaves)

    def take_rows(self, weight: Weight, ids: Int[Array, " T"]) -> Float[Array, "T in"]:
        from cpu_kernels.linear.panels import take_rows

        return take_rows(weight.arrays[PANELS], ids, weight.matrix.shape[-1])


@dataclass(frozen=True)
class CodedPanels(InPanels, RowsOfCodes):
    """Bytes [*stack, num_bytes], and the places of panels in them; see cpu_kernels/linear.

    Each panel has a kind of its own, so layers and fused matrices may mix kinds. A weight with
    fewer bytes than the stack's largest leaves the rest untouched.

    Attributes:
        kinds: the kinds of the weight's rows.
        num_bytes: bytes of the largest weight of the stack.
        ordered: whether the columns lie in another order, which x is put into.
    """

    kinds: tuple[Kind, ...]
    num_bytes: int
    ordered: bool = False

    def arrays(self, matrix: Matrix) -> dict[str, ArraySpec]:
        from cpu_kernels.linear.coded_panels import num_panels

        *stack, rows, size = matrix.shape
        places = (*stack, num_panels(rows, parts_of(matrix)), 2)
        found = {
            CODED_PANELS: ArraySpec((*stack, self.num_bytes), jnp.dtype(jnp.uint8)),
            PLACES: ArraySpec(places, jnp.dtype(jnp.int32)),
        }
        if self.ordered:
            found[ORDER] = ArraySpec((*stack, size), jnp.dtype(jnp.int32))
        return found

    def store(self, rows: np.ndarray, held: Mapping[str, np.ndarray], matrix: Matrix) -> None:
        from cpu_kernels.linear.coded_panels import pack

        for index in np.ndindex(matrix.shape[:-2]):
            here, places = held[CODED_PANELS][index], held[PLACES][index]
            pack(rows[index], self.kinds, here, places, parts=parts_of(matrix))

    def for_kernel(self, weight: Weight) -> "Weights":
        from cpu_kernels.linear.coded_kinds import panel_kinds
        from cpu_kernels.linear.coded_weights import CodedWeights

        kinds, arrays = panel_kinds(self.kinds, weight.matrix.shape[-1]), weight.arrays
        return CodedWeights(arrays[CODED_PANELS], arrays[PLACES], kinds, weight.matrix.dtype)

    def in_order(
        self, x: Float[Array, "T in"], weight: Weight, layer: Int[Array, ""] | None
    ) -> Float[Array, "T in"]:
        if not self.ordered:
            return x
        order = weight.arrays[ORDER]
        if layer is not None:
            order = lax.dynamic_index_in_dim(order, layer, keepdims=False)
        return x[:, order]

    def take_rows(self, weight: Weight, ids: Int[Array, " T"]) -> Float[Array, "T in"]:
        """Takes rows of a matrix whose rows have one kind."""
        from cpu_kernels.linear.coded_kinds import panel_kinds
        from cpu_kernels.linear.coded_panels import take_rows

        assert not self.ordered
        rows, size = weight.matrix.shape
        (kind,) = panel_kinds(self.kinds, size)
        found = take_rows(weight.arrays[CODED_PANELS], kind, jnp.minimum(ids, rows - 1), size)
        return found.astype(weight.matrix.dtype)


def most_bytes(
    kinds: tuple[Kind, ...], layers: Sequence[Sequence[Part]], matrix: Matrix
) -> int | None:
    """Bytes that hold any matrix of a stack.

    Args:
        kinds: the kinds that occur in any row.
        layers: the parts of each layer's matrix: kinds, and numbers of rows in them.
        matrix: one of the stack, or the experts of one layer.

    Returns:
        None if the kernels hold no such rows, or rows of a panel would have different kinds.
    """
    from cpu_kernels.linear.coded_kinds import panel_bytes, panel_kinds
    from cpu_kernels.linear.coded_panels import num_panels
    from cpu_kernels.simd.micro_kernel import COLUMNS

    rows, size = matrix.shape[-2:]
    try:
        held = panel_kinds(kinds, size)
    except ValueError:
        return None
    sizes = {kind: panel_bytes(one, size) for kind, one in zip(kinds, held, strict=True)}
    if len(kinds) == 1:
        return num_panels(rows, parts_of(matrix)) * sizes[kinds[0]]
    if len(matrix.shape) > 2 or any(count % COLUMNS for one in layers for _, count in one):
        return None
    return max(sum(sizes[kind] * count // COLUMNS for kind, count in one) for one in layers)
