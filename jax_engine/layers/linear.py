"""Layers of a single weight: linear ones, and tables of vectors.

Tables are of tokens, and of positions where they are learned.
"""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.layers.batch import Batch
from jax_engine.operations import device_operations
from jax_engine.parallel.collectives import added, chosen, share_of_rows, side_by_side, this_rank
from jax_engine.weights.format import Matrix, WeightFormat, empty_weight
from jax_engine.weights.low_rank import AdapterRows, LowRank, Slots, of_tokens


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
        shared_by: Over how many devices x is cut; `in` is one's share.
        leaves: As in `Matrix`.
        whole_rows: How the weight is cut if x is. False: by columns, and the devices' products are
            added up. True: by rows. Then devices tell each other what they have of x, multiply all
            of it with the rows that they have, and tell each other the products. So must they
            where a row cannot be cut, since its numbers, or those of x, have something in common.
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
        whole_rows: bool = False,
        dtype: jnp.dtype,
        weight_format: WeightFormat,
        stack: tuple[int, ...] = (),
    ):
        self.shared_by, self.whole_rows = shared_by, whole_rows and shared_by > 1
        self.in_size, self.out_size = in_size * shared_by, out_size
        rows, columns = out_size, in_size
        if self.whole_rows:
            rows, columns = share_of_rows(out_size, shared_by), self.in_size
        matrix = Matrix((*stack, rows, columns), dtype, self.gated, leaves)
        self.weight = empty_weight(matrix, weight_format)
        self.bias = nnx.Param(jnp.zeros((*stack, rows), dtype)) if bias else None

    def __call__(
        self, x: Float[Array, "T in"], batch: Batch, layer: Int[Array, ""]
    ) -> Float[Array, "T out"]:
        """The product in `result_dtype`.

        Args:
            layer: The layer's index in the stack. The scan must have sliced the bias already.
        """
        dtype = of_product = self.result_dtype(x.dtype)
        summed = self.shared_by > 1 and not self.whole_rows
        if summed:  # rounded once, behind the sum
            of_product = jnp.dtype(jnp.float32)
        if self.whole_rows:
            x = side_by_side(x, self.in_size, self.shared_by)
        out = self.weight.format.matmul(
            x, self.weight, layer, batch.num_tokens, out_dtype=of_product
        )
        low = self.low_rank(x, batch, layer)
        if low is not None:
            out = low.added_to(out)
        if summed:
            out = added(out, self.shared_by).astype(dtype)
        if self.bias is not None:
            out = out + self.bias[...].astype(out.dtype)
        return side_by_side(out, self.out_size, self.shared_by) if self.whole_rows else out

    def low_rank(
        self, x: Float[Array, "T in"], batch: Batch, layer: Int[Array, ""]
    ) -> LowRank | None:
        """What adapters add to the product; None where the step has none."""
        return low_rank_of(self.slots, x, batch.adapters, layer)

    def result_dtype(self, dtype: jnp.dtype) -> jnp.dtype:
        """The result's dtype for an x of this dtype."""
        return self.weight.format.result_dtype(dtype)


class Embedding(nnx.Module):  # type: ignore[misc]
    """A table of vectors. That of tokens may also be the head's weight.

    Attributes:
        weight: [V, E], stored in a `WeightFormat`.
        slots: What adapters add to vectors, in a step that may have some; else None.
        shared_by: Over how many devices the rows are cut.
    """

    slots: Slots | None = None

    def __init__(
        self,
        vocab_size: int,
        size: int,
        *,
        dtype: jnp.dtype,
        weight_format: WeightFormat,
        shared_by: int = 1,
    ):
        self.vocab_size, self.shared_by = vocab_size, shared_by
        rows = -(-vocab_size // shared_by)
        self.weight = empty_weight(Matrix((rows, size), dtype), weight_format)

    def __call__(
        self, token_ids: Int[Array, " T"], adapters: AdapterRows | None = None
    ) -> Float[Array, "T E"]:
        """The tokens' vectors. Ids out of range are clipped to the nearest valid one."""
        rows = self._rows(token_ids)
        if self.slots is None:
            return rows
        assert adapters is not None
        add = device_operations().add_low_rank
        low = of_tokens(token_ids, self.slots.get_value(), self.slots.layout, adapters, add)
        return low.added_to(rows)

    def _rows(self, token_ids: Int[Array, " T"]) -> Float[Array, "T E"]:
        if self.shared_by == 1:
            return self.weight.format.take_rows(self.weight, token_ids)
        share = self.weight.matrix.shape[0]
        ids = jnp.clip(token_ids, 0, self.vocab_size - 1)
        here = jnp.clip(ids - this_rank() * share, 0, share - 1)
        return chosen(self.weight.format.take_rows(self.weight, here), ids, share, self.shared_by)
