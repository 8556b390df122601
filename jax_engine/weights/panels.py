"""Panels: weights packed in the order in which the CPU's kernels read them."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from jax_engine.layer_spec import Activation
from jax_engine.weights.format import ArraySpec, Matrix, Weight, WeightFormat, gated

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
        from cpu_kernels.simd.micro_kernel import COLUMNS

        panels, rows = weight.arrays[PANELS], weight.matrix.shape[-2]
        if weight.matrix.gated:
            columns = panels.shape[-3] * COLUMNS
            out = linear(x, panels, width=columns, layer=layer, num_rows=num_rows)
            out = _in_order(out, rows, COLUMNS)
        else:
            out = linear(x, panels, width=rows, layer=layer, num_rows=num_rows)
        return out.astype(out_dtype)

    def grouped_matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        bias: Float[Array, "X out"] | None,
        starts: Int[Array, " starts"],
        layer: Int[Array, ""] | None,
    ) -> Float[Array, "T out"]:
        """Multiplies expert by expert: each one's rows are moved to the front of x.

        The kernel skips the rows behind them, and an expert without rows is not read.
        """
        every, first = _one_after_another(weight, layer)
        dtype = self.result_dtype(x.dtype)

        def add(expert: Array, out: Array) -> Array:
            begin, count = starts[expert], starts[expert + 1] - starts[expert]
            rows = jnp.roll(x, -begin, axis=0)
            found = self.matmul(rows, every, first + expert, count, out_dtype=dtype)
            if bias is not None:
                found = found + bias[expert].astype(dtype)
            place = jnp.arange(len(x), dtype=jnp.int32)[:, None]
            mine = (place >= begin) & (place < begin + count)
            return jnp.where(mine, jnp.roll(found, begin, axis=0), out)

        def each(expert: Array, out: Array) -> Array:
            some = starts[expert + 1] > starts[expert]
            kept: Array = lax.cond(some, lambda: add(expert, out), lambda: out)
            return kept

        out = jnp.zeros((x.shape[0], weight.matrix.shape[-2]), dtype)
        summed: Array = lax.fori_loop(0, len(starts) - 1, each, out)
        return summed

    def batched_matmul(
        self,
        x: Float[Array, "X T in"],
        weight: Weight,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
    ) -> Float[Array, "X T out"]:
        """Multiplies matrix by matrix."""
        every, first = _one_after_another(weight, layer)
        dtype = self.result_dtype(x.dtype)

        def one(place: Array) -> Array:
            return self.matmul(x[place], every, first + place, num_rows, out_dtype=dtype)

        out: Array = lax.map(one, jnp.arange(len(x), dtype=jnp.int32))
        return out

    def gated_matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        bias: Float[Array, " out"] | None,
        activation: Activation,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
    ) -> Float[Array, "T F"]:
        """Computes silu's gate in the same kernel, and other gates behind the product."""
        if activation != "silu":
            out = self._with_bias(x, weight, bias, layer, num_rows)
            return gated(out, activation).astype(x.dtype)
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


def _one_after_another(
    weight: Weight, layer: Int[Array, ""] | None
) -> tuple[Weight, Int[Array, ""]]:
    """A stack of all matrices of all layers, and the number of the layer's first one in it."""
    stack = weight.arrays[PANELS]
    panels = stack.reshape(-1, *stack.shape[-3:])
    matrix = weight.matrix._replace(shape=(len(panels), *weight.matrix.shape[-2:]))
    first = jnp.int32(0) if layer is None else layer * weight.matrix.shape[-3]
    return Weight({PANELS: panels}, matrix=matrix, format=weight.format), first


def _in_order(out: Float[Array, "T columns"], rows: int, columns: int) -> Float[Array, "T out"]:
    """The products with gate, then those with up, of panels that alternate between the two."""
    pairs = out.reshape(out.shape[0], -1, 2, columns)
    halves = [pairs[:, :, part].reshape(out.shape[0], -1) for part in range(2)]
    return jnp.concatenate([half[:, : rows // 2] for half in halves], axis=1)


def _parts(matrix: Matrix) -> int:
    return 2 if matrix.gated else 1
