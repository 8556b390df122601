"""Logits to tokens for a whole batch, whatever each request asked for.

Order (V1's): penalties, bias and forbidden tokens, temperature, top-k, top-p, min-p, draw. What
no row of the batch asks for is skipped at run time (`lax.cond`), so a greedy batch costs one
argmax.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jax_engine.sampling.draw import inverse_cdf, uniforms
from jax_engine.sampling.filters import keep_mask
from jax_engine.sampling.inputs import WANTS_PROCESSED, SamplingInputs
from jax_engine.sampling.logits import apply_bias, apply_penalties

MAX_CANDIDATES = 64  # what a beam search may look at; `logprobs` takes 20 of them at most


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SamplerOutput:
    """Tokens, and their log-probabilities where a row wanted them (else zeros).

    Of the raw logits; where a row wanted that, of those that its tokens are drawn from.

    Attributes:
        token_ids: The sampled tokens; M >= R of them, the rest padding.
        logprobs: Of the sampled tokens.
        ranks: Of the sampled tokens; 1 is the most probable.
        top_token_ids: The most probable tokens, best first; C of them.
        top_logprobs: Theirs.
    """

    token_ids: Int[Array, "M"]
    logprobs: Float[Array, "R"]
    ranks: Int[Array, "R"]
    top_token_ids: Int[Array, "R C"]
    top_logprobs: Float[Array, "R C"]


@jax.named_scope("sampling")
def sample(logits: Float[Array, "R V"], inputs: SamplingInputs) -> SamplerOutput:
    """One token for each row of float32 logits."""
    edited = logits
    if inputs.history_row.shape[0]:
        edited = lax.cond(
            jnp.any(inputs.history_row < logits.shape[0]),  # the others are padding
            lambda: apply_penalties(logits, inputs),
            lambda: logits,
        )
    if inputs.bias_row.shape[0]:
        edited = apply_bias(edited, inputs)
    greedy = jnp.argmax(edited, axis=1).astype(jnp.int32)
    token_ids = lax.cond(
        jnp.any(inputs.temperature > 0),
        lambda: jnp.where(inputs.temperature > 0, _draw(edited, inputs), greedy),
        lambda: greedy,
    )
    output: SamplerOutput = lax.cond(
        jnp.any(inputs.want_logprobs > 0),
        lambda: _with_logprobs(_wanted_logits(logits, edited, inputs), token_ids),
        lambda: _without_logprobs(logits, token_ids),
    )
    return output


def _tempered(logits: Float[Array, "R V"], inputs: SamplingInputs) -> Float[Array, "R V"]:
    return logits / jnp.where(inputs.temperature > 0, inputs.temperature, 1.0)[:, None]


def _draw(logits: Float[Array, "R V"], inputs: SamplingInputs) -> Int[Array, "R"]:
    scaled = _tempered(logits, inputs)
    top = jnp.max(scaled, axis=1, keepdims=True)
    weights = jnp.exp(scaled - top)
    filtered = (inputs.top_k > 0) | (inputs.top_p < 1.0) | (inputs.min_p > 0.0)

    def filter_weights() -> Float[Array, "R V"]:
        keep = keep_mask(scaled, inputs.top_k, inputs.top_p, inputs.min_p)
        return jnp.where(keep, weights, 0.0)

    weights = lax.cond(jnp.any(filtered), filter_weights, lambda: weights)
    return inverse_cdf(weights, uniforms(inputs.seed, inputs.position))


def _num_candidates(logits: Float[Array, "R V"]) -> int:
    return min(MAX_CANDIDATES, logits.shape[1])


def _wanted_logits(
    raw: Float[Array, "R V"], edited: Float[Array, "R V"], inputs: SamplingInputs
) -> Float[Array, "R V"]:
    """What each row's log-probabilities are taken of: beams compare what is sampled from."""
    processed = inputs.want_logprobs == WANTS_PROCESSED
    return jnp.where(processed[:, None], _tempered(edited, inputs), raw)


def _with_logprobs(logits: Float[Array, "R V"], token_ids: Int[Array, "R"]) -> SamplerOutput:
    normaliser = jax.nn.logsumexp(logits, axis=1)
    chosen = jnp.take_along_axis(logits, token_ids[:, None], axis=1)
    top, top_ids = lax.top_k(logits, _num_candidates(logits))
    return SamplerOutput(
        token_ids=token_ids,
        logprobs=chosen[:, 0] - normaliser,
        ranks=1 + jnp.sum(logits > chosen, axis=1, dtype=jnp.int32),
        top_token_ids=top_ids.astype(jnp.int32),
        top_logprobs=top - normaliser[:, None],
    )


def _without_logprobs(logits: Float[Array, "R V"], token_ids: Int[Array, "R"]) -> SamplerOutput:
    rows, candidates = logits.shape[0], _num_candidates(logits)
    return SamplerOutput(
        token_ids=token_ids,
        logprobs=jnp.zeros((rows,), jnp.float32),
        ranks=jnp.zeros((rows,), jnp.int32),
        top_token_ids=jnp.zeros((rows, candidates), jnp.int32),
        top_logprobs=jnp.zeros((rows, candidates), jnp.float32),
    )
