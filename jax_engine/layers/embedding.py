"""The token embedding, and its second use as the output head when the two are tied."""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.layers.linear import Matrix, empty_matrix, product


class Embedding(nnx.Module):  # type: ignore[misc]
    """A table of token vectors.

    Attributes:
        weight: [V, E]; a matrix of products if it is the head, too.
    """

    def __init__(self, vocab_size: int, size: int, *, dtype: jnp.dtype, is_head: bool):
        shape = (vocab_size, size)
        self.weight = empty_matrix(shape, dtype) if is_head else nnx.Param(jnp.zeros(shape, dtype))

    def __call__(self, token_ids: Int[Array, " T"]) -> Float[Array, "T E"]:
        """The tokens' vectors; of a number beyond the ends the nearest token's."""
        table: Array = self.weight[...]
        if not (isinstance(self.weight, Matrix) and self.weight.in_panels):
            return table.at[token_ids].get(mode="clip")
        from cpu_kernels.linear.panels import take_rows

        return take_rows(table, token_ids, self.weight.unpacked[-1])

    def logits(
        self, hidden: Float[Array, "R E"], num_rows: Int[Array, ""] | None = None
    ) -> Float[Array, "R V"]:
        """Scores of all tokens in float32, with the table as the head; see `product`."""
        return product(self.weight, hidden, num_rows=num_rows, out_dtype=jnp.dtype(jnp.float32))
