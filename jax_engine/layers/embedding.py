"""Tables of vectors: of tokens, and of positions where they are learned."""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.operations import device_operations
from jax_engine.parallel.sums import chosen, this_rank
from jax_engine.weights.format import Matrix, WeightFormat, empty_weight
from jax_engine.weights.low_rank import AdapterRows, Slots, of_tokens


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
            return self.weight.take_rows(token_ids)
        share = self.weight.matrix.shape[0]
        ids = jnp.clip(token_ids, 0, self.vocab_size - 1)
        here = jnp.clip(ids - this_rank() * share, 0, share - 1)
        return chosen(self.weight.take_rows(here), ids, share, self.shared_by)
