"""Linear layers."""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.weights.format import Matrix, WeightFormat, empty_weight


class Linear(nnx.Module):  # type: ignore[misc]
    """x @ weight.T + bias, for one layer or for a stack of layers that is scanned over.

    Attributes:
        weight: [*stack, out, in], in a format.
        bias: [*stack, out], or None.
    """

    gated = False  # whether the weight is that of a gated product

    def __init__(
        self,
        in_size: int,
        out_size: int,
        *,
        bias: bool = False,
        dtype: jnp.dtype,
        weight_format: WeightFormat,
        stack: tuple[int, ...] = (),
    ):
        matrix = Matrix((*stack, out_size, in_size), dtype, self.gated)
        self.weight = empty_weight(matrix, weight_format)
        self.bias = nnx.Param(jnp.zeros((*stack, out_size), dtype)) if bias else None

    def __call__(
        self,
        x: Float[Array, "T in"],
        layer: Int[Array, ""] | None = None,
        num_rows: Int[Array, ""] | None = None,
        *,
        out_dtype: jnp.dtype | None = None,
    ) -> Float[Array, "T out"]:
        """The product, returned in `out_dtype`, or in `result_dtype`.

        Args:
            layer: index of the layer in a stack. A bias must have been sliced by the scan already.
            num_rows: how many rows of x are not padding; a format may skip the others.
        """
        out = self.weight.matmul(
            x, layer, num_rows, out_dtype=out_dtype or self.result_dtype(x.dtype)
        )
        if self.bias is not None:
            out = out + self.bias[...].astype(out.dtype)
        return out

    def result_dtype(self, dtype: jnp.dtype) -> jnp.dtype:
        """The dtype of what comes back for x of a dtype."""
        return self.weight.format.result_dtype(dtype)
