"""Edits of the logits before the draw: penalties, then bias and forbidden tokens.

The host sends penalties and bias as sparse lists, because few requests ask for them. A batch that
has none runs a program without them (their static length is 0). Allowed tokens are sent as bits,
and only to the sampling program of a split step (`StepShape.split`).
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from jax_engine.sampling.inputs import SamplingInputs


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
