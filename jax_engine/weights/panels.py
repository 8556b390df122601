"""Panels: weights packed in the order in which the CPU's kernels read them."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jax_engine.model_spec import Activation
from jax_engine.weights.format import ArraySpec, Matrix, Weight, WeightFormat

PANELS = "panels"


@dataclass(frozen=True)
class Panels(WeightFormat):
    """One array [*stack, panels, words, columns] in float32 or bfloat16; see cpu_kernels/linear.

    The kernels receive all layers and an index, so nothing is copied. They skip rows beyond
    `num_rows`. The panels of a gated matrix alternate between its halves.
    """

    indexed = True

    def arrays(self, matrix: Matrix) -> dict[str, ArraySpec]:
        from cpu_kernels.linear.panels import panel_shape

        *stack, rows, size = matrix.shape
        shape = (*stack, *panel_shape(rows, size, matrix.dtype, _parts(matrix)))
        axes = (*("layer",) * len(stack), "out", "in", None)
        return {PANELS: ArraySpec(shape, matrix.dtype, axes)}

    def pack(self, values: np.ndarray, held: Mapping[str, np.ndarray], matrix: Matrix) -> None:
        from cpu_kernels.linear.panels import pack_panels

        pack_panels(values, held[PANELS], parts=_parts(matrix))

    def matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
        *,
        out_dtype: jnp.dtype,
    ) -> Float[Array, "T out"]:
        from cpu_kernels.linear.linear import linear

        panels, width = weight.arrays[PANELS], weight.matrix.shape[-2]
        out = linear(x, panels, width=width, layer=layer, num_rows=num_rows)
        return out.astype(out_dtype)

    def gated_matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        bias: Float[Array, " out"] | None,
        activation: Activation,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
    ) -> Float[Array, "T F"]:
        """Computes the gate in the same kernel."""
        from cpu_kernels.linear.gated_linear import gated_linear

        panels, width = weight.arrays[PANELS], weight.matrix.shape[-2] // 2
        index = jnp.zeros((), jnp.int32) if layer is None else layer
        count = jnp.int32(x.shape[0]) if num_rows is None else num_rows
        return gated_linear(
            x, panels, bias, width=width, layer=index, num_rows=count, dtype=x.dtype
        )

    def take_rows(self, weight: Weight, ids: Int[Array, " T"]) -> Float[Array, "T in"]:
        from cpu_kernels.linear.panels import take_rows

        return take_rows(weight.arrays[PANELS], ids, weight.matrix.shape[-1])

    def result_dtype(self, dtype: jnp.dtype) -> jnp.dtype:
        """float32, as the kernels compute.

        Rounding each product to bfloat16 took a sixth of a prompt's time. Whatever stores or
        multiplies the result rounds it.
        """
        return jnp.dtype(jnp.float32)


def _parts(matrix: Matrix) -> int:
    return 2 if matrix.gated else 1
