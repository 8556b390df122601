"""Tables of vectors: of tokens, and of positions where they are learned."""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.operations import device_operations
from jax_engine.weights.format import Matrix, WeightFormat, empty_weight
from jax_engine.weights.low_rank import AdapterRows, Slots, of_tokens


class Embedding(nnx.Module):  # type: ignore[misc]
    """A table of vectors. That of tokens may also be the head's weight.

    Attributes:
        weight: [V, E], stored in a `WeightFormat`.
        slots: What adapters add to vectors, in a step that may have some; else None.
    """

    slots: Slots | None = None

    def __init__(
        self, vocab_size: int, size: int, *, dtype: jnp.dtype, weight_format: WeightFormat
    ):
        self.weight = empty_weight(Matrix((vocab_size, size), dtype), weight_format)

    def __call__(
        self, token_ids: Int[Array, " T"], adapters: AdapterRows | None = None
    ) -> Float[Array, "T E"]:
        """The tokens' vectors. Ids out of range are clipped to the nearest valid one."""
        rows = self.weight.take_rows(token_ids)
        if self.slots is None:
            return rows
        assert adapters is not None
        add = device_operations().add_low_rank
        low = of_tokens(token_ids, self.slots.get_value(), self.slots.layout, adapters, add)
        return low.added_to(rows)
