"""Linear layers."""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.layers.batch import Batch
from jax_engine.operations import device_operations
from jax_engine.parallel.sums import added
from jax_engine.weights.format import Matrix, WeightFormat, empty_weight
from jax_engine.weights.low_rank import AdapterRows, LowRank, Slots


def low_rank_of(
    slots: Slots | None, x: Float[Array, "T in"], rows: AdapterRows | None, layer: Int[Array, ""]
) -> LowRank | None:
    """What adapters add to the product of x and a weight with these slots.

    Args:
        rows: which rows of x have which adapter; `slots` says whether there may be some.
    """
    if slots is None:
        return None
    assert rows is not None
    add = device_operations().add_low_rank
    return LowRank(x, slots.get_value(), slots.layout, layer, rows, add)


class Linear(nnx.Module):  # type: ignore[misc]
    """x @ weight.T + bias, for one layer or for a stack of layers that is scanned over.

    Attributes:
        weight: [*stack, out, in], stored in a `WeightFormat`.
        bias: [*stack, out], or None.
        slots: What adapters add to the product, in a step that may have some; else None.
        shared_by: Over how many devices the columns of the weight are cut; `in` is one's share.
        leaves: As in `Matrix`.
            None: this product is never cut so.
    """

    gated = False  # whether the weight belongs to a gated product
    slots: Slots | None = None

    def __init__(
        self,
        in_size: int,
        out_size: int,
        *,
        bias: bool = False,
        shared_by: int = 1,
        leaves: int = 1,
        dtype: jnp.dtype,
        weight_format: WeightFormat,
        stack: tuple[int, ...] = (),
    ):
        self.shared_by = shared_by
        matrix = Matrix((*stack, out_size, in_size), dtype, self.gated, leaves)
        self.weight = empty_weight(matrix, weight_format)
        self.bias = nnx.Param(jnp.zeros((*stack, out_size), dtype)) if bias else None

    def __call__(
        self, x: Float[Array, "T in"], batch: Batch, layer: Int[Array, ""]
    ) -> Float[Array, "T out"]:
        """The product in `result_dtype`.

        Args:
            layer: The layer's index in the stack. The scan must have sliced the bias already.
        """
        out_dtype = self.result_dtype(x.dtype)
        of_product = out_dtype if self.shared_by == 1 else jnp.dtype(jnp.float32)
        out = self.weight.matmul(x, layer, batch.num_tokens, out_dtype=of_product)
        low = self.low_rank(x, batch, layer)
        if low is not None:
            out = low.added_to(out)
        out = added(out, self.shared_by).astype(out_dtype)  # rounded once, behind the sum
        if self.bias is not None:
            out = out + self.bias[...].astype(out.dtype)
        return out

    def low_rank(
        self, x: Float[Array, "T in"], batch: Batch, layer: Int[Array, ""]
    ) -> LowRank | None:
        """What adapters add to the product; None where the step has none."""
        return low_rank_of(self.slots, x, batch.adapters, layer)

    def result_dtype(self, dtype: jnp.dtype) -> jnp.dtype:
        """The result's dtype for an x of this dtype."""
        return self.weight.format.result_dtype(dtype)
