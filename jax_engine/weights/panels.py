"""Panels: weights packed in the order in which the CPU's kernels read them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jax_engine.layer_spec import Activation
from jax_engine.weights.format import ArraySpec, Matrix, Weight, bias_of_rows
from jax_engine.weights.low_rank import LowRank, expand_of
from jax_engine.weights.stacks import InPanels, index_of, parts_of

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
