"""Log-probabilities of a prompt's own tokens, for `SamplingParams.prompt_logprobs`."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jax_engine.models.decoder import Decoder
from jax_engine.operations import device_operations
from jax_engine.sampling.sampler import SamplerOutput, with_logprobs, without_logprobs
from jax_engine.weights.low_rank import AdapterRows, sort_rows

NUM_TOP = 20  # vLLM's default `max_logprobs`; a request for more gets the whole vocabulary
ROWS_A_CHUNK = 64  # bounds the logits' memory: never all tokens times the vocabulary


@jax.named_scope("prompt_logprobs")
def prompt_logprobs(
    model: Decoder,
    hidden: Float[Array, "T E"],
    targets: Int[Array, " T"],
    num_top: int,
    batch_invariant: bool = False,
    adapters: AdapterRows | None = None,
) -> SamplerOutput:
    """Log-probabilities of each token's successor in its prompt, and of the most probable tokens.

    Args:
        targets: Each token's successor, or -1 if not requested. A chunk of only -1 is skipped.
        num_top: How many of the most probable tokens are returned.
        batch_invariant: As in `make_batch`.
        adapters: Which tokens have which adapter; None where no step has any.
    """
    tokens = hidden.shape[0]
    rows = min(ROWS_A_CHUNK, tokens)
    padding = -tokens % rows
    hidden = jnp.pad(hidden, ((0, padding), (0, 0))).reshape(-1, rows, hidden.shape[1])
    targets = jnp.pad(targets, (0, padding), constant_values=-1).reshape(-1, rows)

    logsumexp = device_operations(batch_invariant).logsumexp

    def one_chunk(chunk: tuple[Array, ...]) -> list[Array]:
        states, wanted, *slots = chunk
        token_ids = jnp.maximum(wanted, 0)

        def logits() -> Float[Array, "R V"]:
            own = [(None, sort_rows(slot, num_slots)) for slot in slots]
            found: Array = model.compute_logits(states, *(own[0] if own else ()))
            return found

        output = lax.cond(
            jnp.any(wanted >= 0),
            lambda: with_logprobs(logits(), token_ids, num_top, logsumexp),
            lambda: without_logprobs(token_ids, model.spec.vocab_size, num_top),
        )
        return jax.tree.leaves(output)

    chunks: tuple[Array, ...] = hidden, targets
    num_slots = 0
    if adapters is not None:
        num_slots = len(adapters.starts) - 2
        chunks += (jnp.pad(adapters.slot, (0, padding)).reshape(-1, rows),)
    parts = lax.map(one_chunk, chunks)
    return SamplerOutput(*(part.reshape(-1, *part.shape[2:])[:tokens] for part in parts))
