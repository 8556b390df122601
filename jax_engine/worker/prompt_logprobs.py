"""Log-probabilities of a prompt's own tokens, for `SamplingParams.prompt_logprobs`.

Why they are no `Samples` along the prompt's row, whose token is known: a sampler has the logits of
all its rows at once. For a prompt of 2,048 tokens and a vocabulary of 49,152 these are 400 MB; a
chunk here has 13 MB. A sampler in chunks would be another program than that of the tokens that are
drawn beside them, which is what there is now. Every row would also have its sampling parameters in
the packed plan, 11 words where a target is one, and every step would return as many `token_ids` as
the longest prompt step has tokens, not as the most that are drawn. The number of compiled shapes
would stay: one with as many rows as tokens would take the place of `StepShape.prompt_logprobs`.

Little would be saved. What a sample takes from its position is for the draw: penalties, bias,
masks, a processor's logits, a seed. A prompt's log-probabilities are of the raw logits, and
nothing is drawn. So the controller would need to know, wherever it counts samples (for a step's
budget, for guesses, for the token that follows), that some draw nothing. Both ways meet where they
are the same: a token's hidden state, `compute_logits` and `with_logprobs`.
"""

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
