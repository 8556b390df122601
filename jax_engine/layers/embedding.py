"""The token embedding, and its second use as the output head when the two are tied."""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.layers.linear import product


class Embedding(nnx.Module):  # type: ignore[misc]
    """A table of token vectors.

    Attributes:
        weight: [V, E].
    """

    def __init__(self, vocab_size: int, size: int, *, dtype: jnp.dtype):
        self.weight = nnx.Param(jnp.zeros((vocab_size, size), dtype))

    def __call__(self, token_ids: Int[Array, " T"]) -> Float[Array, "T E"]:
        table: Array = self.weight[...]
        return table.at[token_ids].get(mode="clip")

    def logits(
        self, hidden: Float[Array, "R E"], num_rows: Int[Array, ""] | None = None
    ) -> Float[Array, "R V"]:
        """Scores of all tokens in float32, with the table as the head; see `product`."""
        float32 = jnp.dtype(jnp.float32)
        return product(self.weight[...], hidden, num_rows=num_rows, out_dtype=float32)
