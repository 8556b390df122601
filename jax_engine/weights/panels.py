"""Panels: weights packed in the order in which the CPU's kernels read them.

`Panels` hold numbers, `CodedPanels` the codes of quantised weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from jax_engine.model_spec import Activation
from jax_engine.weights.code_sources import ORDER, RowsOfCodes
from jax_engine.weights.codes import Kind
from jax_engine.weights.format import (
    ArraySpec,
    InPanels,
    Matrix,
    Weight,
    bias_of_rows,
    index_of,
    parts_of,
)
from jax_engine.weights.low_rank import LowRank, expand_of

PANELS = "panels"


@dataclass(frozen=True)
class Panels(InPanels):
    """One array [*stack, panels, words, columns]; see cpu_kernels/linear.

    Its dtype is float32, bfloat16 or float16. The panels of a gated matrix alternate between its
    halves.
    """

    def arrays(self, matrix: Matrix) -> dict[str, ArraySpec]:
        from cpu_kernels.linear.panels import panel_shape

        *stack, rows, size = matrix.shape
        shape = (*stack, *panel_shape(rows, size, matrix.dtype, parts_of(matrix)))
        return {PANELS: ArraySpec(shape, matrix.dtype)}

    def pack(self, values: np.ndarray, held: Mapping[str, np.ndarray], matrix: Matrix) -> None:
        from cpu_kernels.linear.panels import pack_panels

        pack_panels(values, held[PANELS], parts=parts_of(matrix))

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
        panels, rows = weight.arrays[PANELS], weight.matrix.shape[-2]
        leaves = weight.matrix.leaves
        out = linear(x, panels, width=rows, layer=layer, num_rows=num_rows, leaves=leaves)
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
        from cpu_kernels.linear.grouped_linear import grouped_linear

        panels, width = weight.arrays[PANELS], weight.matrix.shape[-2]
        out = grouped_linear(x, panels, starts, width=width, layer=index_of(layer))
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
        from cpu_kernels.linear.gated_linear import gated_linear

        panels, width = weight.arrays[PANELS], weight.matrix.shape[-2] // 2
        count = jnp.int32(x.shape[0]) if num_rows is None else num_rows
        options: dict[str, Any] = {"width": width, "activation": activation, "dtype": x.dtype}
        options["expand"] = None if low is None else expand_of(low)
        return gated_linear(x, panels, bias, layer=index_of(layer), num_rows=count, **options)

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
        from cpu_kernels.linear.grouped_linear import grouped_gated_linear

        panels, width = weight.arrays[PANELS], weight.matrix.shape[-2] // 2
        options: dict[str, Any] = {"width": width, "activation": activation, "dtype": x.dtype}
        options["expand"] = None if low is None else expand_of(low)
        return grouped_gated_linear(x, panels, bias, starts, layer=index_of(layer), **options)

    def take_rows(self, weight: Weight, ids: Int[Array, " T"]) -> Float[Array, "T in"]:
        from cpu_kernels.linear.panels import take_rows

        return take_rows(weight.arrays[PANELS], ids, weight.matrix.shape[-1])


CODED_PANELS, PLACES = "panels", "places"
Part = tuple[Kind, int]


@dataclass(frozen=True)
class CodedPanels(InPanels, RowsOfCodes):
    """Bytes [*stack, num_bytes], and the places of panels in them; see cpu_kernels/quantized.

    Each panel has a kind of its own, so layers and fused matrices may mix kinds. A weight with
    fewer bytes than the stack's largest leaves the rest untouched.

    Attributes:
        kinds: the kinds of the weight's rows.
        num_bytes: of the largest weight of the stack.
        ordered: whether the columns lie in another order, which x is put into.
    """

    kinds: tuple[Kind, ...]
    num_bytes: int
    ordered: bool = False

    def arrays(self, matrix: Matrix) -> dict[str, ArraySpec]:
        from cpu_kernels.quantized.panels import num_panels

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
        from cpu_kernels.quantized.panels import pack

        for index in np.ndindex(matrix.shape[:-2]):
            here, places = held[CODED_PANELS][index], held[PLACES][index]
            pack(rows[index], self.kinds, here, places, parts=parts_of(matrix))

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
        from cpu_kernels.quantized.linear import quantized_linear

        assert not weight.matrix.gated
        x = self._in_order(x, weight, layer)
        options: dict[str, Any] = {"width": weight.matrix.shape[-2], "dtype": weight.matrix.dtype}
        out = quantized_linear(x, *self._held(weight), layer=layer, num_rows=num_rows, **options)
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
        from cpu_kernels.quantized.grouped_linear import grouped_quantized_linear

        options: dict[str, Any] = {"width": weight.matrix.shape[-2], "dtype": weight.matrix.dtype}
        held, index = self._held(weight), index_of(layer)
        out = grouped_quantized_linear(x, *held, starts, layer=index, **options)
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
        from cpu_kernels.quantized.gated_linear import quantized_gated_linear

        options = self._gated_options(x, weight, activation, layer)
        options["num_rows"] = jnp.int32(x.shape[0]) if num_rows is None else num_rows
        options["expand"] = None if low is None else expand_of(low)
        x = self._in_order(x, weight, layer)
        panels, places, kinds = self._held(weight)
        return quantized_gated_linear(x, panels, places, bias, kinds, **options)

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
        from cpu_kernels.quantized.grouped_linear import grouped_quantized_gated_linear

        options = self._gated_options(x, weight, activation, layer)
        options["expand"] = None if low is None else expand_of(low)
        panels, places, kinds = self._held(weight)
        return grouped_quantized_gated_linear(x, panels, places, bias, kinds, starts, **options)

    def take_rows(self, weight: Weight, ids: Int[Array, " T"]) -> Float[Array, "T in"]:
        """Takes rows of a matrix whose rows have one kind."""
        from cpu_kernels.quantized.take_rows import take_rows

        assert not self.ordered
        panels, _, (kind,) = self._held(weight)
        ids = jnp.minimum(ids, weight.matrix.shape[-2] - 1)
        return take_rows(panels, kind, ids, weight.matrix.shape[-1]).astype(weight.matrix.dtype)

    def _held(self, weight: Weight) -> tuple[Array, Array, Any]:
        """Bytes, places of panels, and the kinds of panels."""
        from cpu_kernels.quantized.kinds import panel_kinds

        kinds = panel_kinds(self.kinds, weight.matrix.shape[-1])
        return weight.arrays[CODED_PANELS], weight.arrays[PLACES], kinds

    def _in_order(
        self, x: Float[Array, "T in"], weight: Weight, layer: Int[Array, ""] | None
    ) -> Float[Array, "T in"]:
        if not self.ordered:
            return x
        order = weight.arrays[ORDER]
        if layer is not None:
            order = lax.dynamic_index_in_dim(order, layer, keepdims=False)
        return x[:, order]

    def _gated_options(
        self, x: Array, weight: Weight, activation: Activation, layer: Int[Array, ""] | None
    ) -> dict[str, Any]:
        return {
            "width": weight.matrix.shape[-2] // 2,
            "dtype": weight.matrix.dtype,
            "layer": index_of(layer),
            "activation": activation,
            "out_dtype": x.dtype,
        }


def most_bytes(
    kinds: tuple[Kind, ...], layers: Sequence[Sequence[Part]], matrix: Matrix
) -> int | None:
    """Bytes that hold any matrix of a stack.

    Args:
        kinds: of all rows.
        layers: the parts of each layer's matrix: kinds, and numbers of rows in them.
        matrix: one of the stack, or the experts of one layer.

    Returns:
        None if the kernels hold no such rows, or rows of a panel would have different kinds.
    """
    from cpu_kernels.quantized.kinds import panel_bytes, panel_kinds
    from cpu_kernels.quantized.panels import num_panels
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
