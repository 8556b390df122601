"""Log-probabilities of a prompt's own tokens, for `SamplingParams.prompt_logprobs`."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jax_engine.models.decoder import Decoder
from jax_engine.sampling.sampler import SamplerOutput, with_logprobs, without_logprobs

NUM_TOP = 20  # vLLM's default `max_logprobs`; who wants more gets a step with all of them
ROWS_A_CHUNK = 64  # no array of all tokens times the vocabulary is made


@jax.named_scope("prompt_logprobs")
def prompt_logprobs(
    model: Decoder, hidden: Float[Array, "T E"], targets: Int[Array, " T"], num_top: int
) -> SamplerOutput:
    """Of each token's target, the token that follows it in its prompt; and the most probable ones.

    Args:
        num_top: How many of the most probable ones.
        targets: -1 for tokens that nobody asks about; a chunk of only those costs nothing.
    """
    tokens = hidden.shape[0]
    rows = min(ROWS_A_CHUNK, tokens)
    padding = -tokens % rows
    hidden = jnp.pad(hidden, ((0, padding), (0, 0))).reshape(-1, rows, hidden.shape[1])
    targets = jnp.pad(targets, (0, padding), constant_values=-1).reshape(-1, rows)

    def one_chunk(chunk: tuple[Array, Array]) -> list[Array]:
        states, wanted = chunk
        token_ids = jnp.maximum(wanted, 0)
        output = lax.cond(
            jnp.any(wanted >= 0),
            lambda: with_logprobs(model.compute_logits(states), token_ids, num_top),
            lambda: without_logprobs(token_ids, model.config.vocab_size, num_top),
        )
        return jax.tree.leaves(output)

    parts = lax.map(one_chunk, (hidden, targets))
    return SamplerOutput(*(part.reshape(-1, *part.shape[2:])[:tokens] for part in parts))
