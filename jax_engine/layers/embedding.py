"""The token embedding, and its second use as the output head when the two are tied."""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.weights.format import Matrix, WeightFormat, empty_weight


class Embedding(nnx.Module):  # type: ignore[misc]
    """A table of token vectors.

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

    def logits(
        self, hidden: Float[Array, "R E"], num_rows: Int[Array, ""] | None = None
    ) -> Float[Array, "R V"]:
        """Scores of all tokens in float32, with the table as the head."""
        return self.weight.matmul(hidden, None, num_rows, out_dtype=jnp.dtype(jnp.float32))
