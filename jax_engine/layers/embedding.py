"""Tables of vectors: of tokens, and of positions where they are learned."""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.weights.format import Matrix, WeightFormat, empty_weight


class Embedding(nnx.Module):  # type: ignore[misc]
    """A table of vectors. That of tokens may also be the head's weight.

    Attributes:
        weight: [V, E], stored in a `WeightFormat`.
    """

    def __init__(
        self, vocab_size: int, size: int, *, dtype: jnp.dtype, weight_format: WeightFormat
    ):
        self.weight = empty_weight(Matrix((vocab_size, size), dtype), weight_format)

    def __call__(self, token_ids: Int[Array, " T"]) -> Float[Array, "T E"]:
        """The tokens' vectors. Ids out of range are clipped to the nearest valid one."""
        return self.weight.take_rows(token_ids)
