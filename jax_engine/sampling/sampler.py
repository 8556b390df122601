"""Samples the tokens of a whole batch, with any mixture of sampling parameters.

Order (V1's): logits processors (on the host), penalties, bias and forbidden tokens, temperature,
top-n-sigma, top-k, top-p, min-p, draw. Parts that no row of the batch needs are skipped, so a
greedy batch costs one argmax: by the device (`lax.cond`), or by the host, which knows (`asks`).

The host sends penalties and bias as sparse lists, because few requests ask for them. A batch that
has none runs a program without them (their static length is 0). Allowed tokens are sent as bits,
and only to the sampling program of a split step (`StepShape.split`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, UInt32

from jax_engine.sampling.draw import tempered
from jax_engine.sampling.sampling_inputs import WANTS_PROCESSED, SamplingInputs, branch
from jax_engine.sampling_params import MAX_CANDIDATES


def apply_penalties(logits: Float[Array, "R V"], inputs: SamplingInputs) -> Float[Array, "R V"]:
    """Applies repetition (prompt and output), then frequency and presence (output only)."""
    zeros = jnp.zeros(logits.shape, jnp.float32)
    at = (inputs.history_row, inputs.history_token)
    seen = zeros.at[at].set(1.0, mode="drop") > 0
    counts = zeros.at[at].add(inputs.history_is_output.astype(jnp.float32), mode="drop")
    repetition = jnp.where(seen, inputs.repetition_penalty[:, None], 1.0)
    logits = jnp.where(logits > 0, logits / repetition, logits * repetition)
    logits -= inputs.frequency_penalty[:, None] * counts
    return logits - inputs.presence_penalty[:, None] * (counts > 0)


def apply_bias(logits: Float[Array, "R V"], inputs: SamplingInputs) -> Float[Array, "R V"]:
    """Adds `logit_bias`; tokens that `min_tokens` forbids have a bias of -inf."""
    at = (inputs.bias_row, inputs.bias_token)
    return logits.at[at].add(inputs.bias_value, mode="drop")


def forbid_tokens(
    logits: Float[Array, "R V"], allowed: UInt32[Array, "R words"]
) -> Float[Array, "R V"]:
    """Sets tokens whose bit is 0 to -inf. `token_bits` defines the order of the bits."""
    rows, vocab = logits.shape
    bits = (allowed[:, :, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
    return jnp.where(bits.reshape(rows, -1)[:, :vocab] > 0, logits, -jnp.inf)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SamplerOutput:
    """Tokens, with log-probabilities if any row asks for them (zeros otherwise).

    Log-probabilities come from the raw logits; rows of beam search use the processed ones.

    Attributes:
        token_ids: The sampled tokens, padded from R to M.
        logprobs: Log-probabilities of the sampled tokens.
        ranks: Ranks of the sampled tokens; 1 is the most probable.
        top_token_ids: The C most probable tokens, best first.
        top_logprobs: Log-probabilities of `top_token_ids`.
    """

    token_ids: Int[Array, "M"]
    logprobs: Float[Array, "R"]
    ranks: Int[Array, "R"]
    top_token_ids: Int[Array, "R C"]
    top_logprobs: Float[Array, "R C"]


@jax.named_scope("sampling")
def sample(
    logits: Float[Array, "R V"],
    inputs: SamplingInputs,
    processed: Float[Array, "R V"] | None = None,
    allowed: UInt32[Array, "R words"] | None = None,
    *,
    draw: Callable[[Array, SamplingInputs], Array],
    logsumexp: Callable[[Array], Array],
) -> SamplerOutput:
    """One token for each row of float32 logits.

    Args:
        logits: The model's raw logits, from which log-probabilities are computed.
        processed: The logits after `logits_processors`; None without processors.
        allowed: A bit for each token that may be drawn (`token_bits`); None: all may.
        draw, logsumexp: The implementations that this device runs (`operations`).
    """
    edited = logits if processed is None else processed
    if inputs.history_row.shape[0]:
        unpenalised = edited
        edited = branch(
            None if inputs.asks is None else True,
            lambda: jnp.any(inputs.history_row < logits.shape[0]),  # the others are padding
            lambda: apply_penalties(unpenalised, inputs),
            lambda: unpenalised,
        )
    if inputs.bias_row.shape[0]:
        edited = apply_bias(edited, inputs)
    if allowed is not None:
        edited = forbid_tokens(edited, allowed)
    token_ids = draw(edited, inputs)
    return branch(
        None if inputs.asks is None else inputs.asks.logprobs,
        lambda: jnp.any(inputs.want_logprobs > 0),
        lambda: with_logprobs(
            _wanted_logits(logits, edited, inputs), token_ids, MAX_CANDIDATES, logsumexp
        ),
        lambda: without_logprobs(token_ids, logits.shape[1], MAX_CANDIDATES),
    )


def _wanted_logits(
    raw: Float[Array, "R V"], edited: Float[Array, "R V"], inputs: SamplingInputs
) -> Float[Array, "R V"]:
    """The logits for log-probabilities: raw, or processed for beams, which compare these."""
    processed = inputs.want_logprobs == WANTS_PROCESSED
    return jnp.where(processed[:, None], tempered(edited, inputs), raw)


def with_logprobs(
    logits: Float[Array, "R V"],
    token_ids: Int[Array, "R"],
    num_top: int,
    logsumexp: Callable[[Array], Array],
) -> SamplerOutput:
    """Adds each token's log-probability and rank, and the `num_top` most probable tokens."""
    normaliser = logsumexp(logits)
    chosen = jnp.take_along_axis(logits, token_ids[:, None], axis=1)
    top, top_ids = lax.top_k(logits, min(num_top, logits.shape[1]))
    return SamplerOutput(
        token_ids=token_ids,
        logprobs=chosen[:, 0] - normaliser,
        ranks=1 + jnp.sum(logits > chosen, axis=1, dtype=jnp.int32),
        top_token_ids=top_ids.astype(jnp.int32),
        top_logprobs=top - normaliser[:, None],
    )


def without_logprobs(token_ids: Int[Array, "R"], vocab_size: int, num_top: int) -> SamplerOutput:
    """An output of the same shapes with the tokens alone: all other fields are zeros."""
    rows, candidates = token_ids.shape[0], min(num_top, vocab_size)
    return SamplerOutput(
        token_ids=token_ids,
        logprobs=jnp.zeros((rows,), jnp.float32),
        ranks=jnp.zeros((rows,), jnp.int32),
        top_token_ids=jnp.zeros((rows, candidates), jnp.int32),
        top_logprobs=jnp.zeros((rows, candidates), jnp.float32),
    )
