"""What the sampler needs of each row, as arrays; and the host-side rows they are made of."""

from dataclasses import dataclass, fields, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, UInt32

from jax_engine.sampling_params import SamplingParams

ROW_WIDTH = 10  # int32 words a row: two of seed, top_k, wants log-probabilities, six floats
# Values of the word of log-probabilities; 0 for none
WANTS_RAW, WANTS_PROCESSED = 1, 2


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SamplingInputs:
    """One row a sampled token; R rows, padding rows are greedy.

    Attributes:
        seed: The 64 bits of the request's seed (of its i-th sample), high word first.
        position: Tokens before the sampled one: with the seed, all that the draw depends on.
        top_k: 0 for all.
        want_logprobs: WANTS_RAW where log-probabilities are asked for, WANTS_PROCESSED where they
            are to be those of the edited and tempered logits (beam search).
        temperature: 0 for greedy.
        bias: Sparse (row, token, value) to add; padding has row R.
        history: Sparse (row, token, is_output) of rows with penalties; padding has row R.
    """

    seed: UInt32[Array, "R 2"]
    position: Int[Array, "R"]
    top_k: Int[Array, "R"]
    want_logprobs: Int[Array, "R"]
    temperature: Float[Array, "R"]
    top_p: Float[Array, "R"]
    min_p: Float[Array, "R"]
    presence_penalty: Float[Array, "R"]
    frequency_penalty: Float[Array, "R"]
    repetition_penalty: Float[Array, "R"]
    bias_row: Int[Array, "NB"]
    bias_token: Int[Array, "NB"]
    bias_value: Float[Array, "NB"]
    history_row: Int[Array, "NH"]
    history_token: Int[Array, "NH"]
    history_is_output: Int[Array, "NH"]


def first_rows(inputs: SamplingInputs, rows: int) -> SamplingInputs:
    """The same of the first rows alone; entries of bias and history for the others are padding."""
    sparse = ("bias", "history")
    cut = {
        field.name: getattr(inputs, field.name)[:rows]
        for field in fields(inputs)
        if not field.name.startswith(sparse)
    }
    return replace(inputs, **cut)


def sampling_row(params: SamplingParams, seed: int) -> np.ndarray:
    """The int32 words of one sequence's settings: fixed for its life, so packed once."""
    row = np.zeros(ROW_WIDTH, np.int32)
    row[:2] = np.array([(seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32).view(np.int32)
    row[2] = min(max(params.top_k, 0), 2**31 - 1)
    if params.needs_logprobs:
        row[3] = WANTS_PROCESSED if params.use_beam_search else WANTS_RAW
    row[4:] = np.array(
        [
            0.0 if params.greedy else params.temperature,
            params.top_p,
            params.min_p,
            params.presence_penalty,
            params.frequency_penalty,
            params.repetition_penalty,
        ],
        np.float32,
    ).view(np.int32)
    return row


def unpack_sampling(
    rows: Int[Array, "R 10"],
    position: Int[Array, "R"],
    bias: Int[Array, "3 NB"],
    history: Int[Array, "3 NH"],
) -> SamplingInputs:
    """The inverse of `sampling_row`, on the device."""
    floats = lax.bitcast_convert_type(rows[:, 4:], jnp.float32)
    return SamplingInputs(
        seed=lax.bitcast_convert_type(rows[:, :2], jnp.uint32),
        position=position,
        top_k=rows[:, 2],
        want_logprobs=rows[:, 3],
        temperature=floats[:, 0],
        top_p=floats[:, 1],
        min_p=floats[:, 2],
        presence_penalty=floats[:, 3],
        frequency_penalty=floats[:, 4],
        repetition_penalty=floats[:, 5],
        bias_row=bias[0],
        bias_token=bias[1],
        bias_value=lax.bitcast_convert_type(bias[2], jnp.float32),
        history_row=history[0],
        history_token=history[1],
        history_is_output=history[2],
    )
