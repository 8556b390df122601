"""Edits of logits by numbers: penalties, bias, allowed tokens."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine import SamplingParams
from jax_engine.sampling.masked_steps import token_bits
from jax_engine.sampling.sampler import apply_bias, apply_penalties, forbid_tokens
from jax_engine.sampling.sampling_inputs import SamplingInputs, sampling_row, unpack_sampling

LOGITS = np.float32([[4.0, -4.0, 0.0, 2.0, 1.0]] * 3)


def inputs_of(settings: list[dict[str, Any]], bias: Any, history: Any) -> SamplingInputs:
    rows = np.stack([sampling_row(SamplingParams(**one), 0) for one in settings])
    columns = [jnp.array(np.reshape(one, (3, -1)), jnp.int32) for one in (bias, history)]
    return unpack_sampling(jnp.asarray(rows), jnp.zeros(len(rows), jnp.int32), *columns)


def test_penalties_are_of_their_row_s_own_tokens() -> None:
    """Repetition of prompt and output; frequency and presence of the output alone."""
    settings = [
        {"repetition_penalty": 2.0},
        {"frequency_penalty": 0.5, "presence_penalty": 1.0},
        {},
    ]
    row_token_output = [
        (0, 0, 0), (0, 1, 1), (0, 2, 1), (1, 0, 0), (1, 3, 1), (1, 3, 1), (1, 4, 1), (3, 0, 1),
    ]  # fmt: skip
    inputs = inputs_of(settings, [], np.transpose(row_token_output))
    assert apply_penalties(jnp.asarray(LOGITS), inputs).tolist() == [
        [2.0, -8.0, 0.0, 2.0, 1.0],
        [4.0, -4.0, 0.0, 0.0, -0.5],  # of token 3 two, so 2 * 0.5 + 1
        LOGITS[2].tolist(),
    ]


def test_bias_is_added_to_its_row_s_token() -> None:
    values = np.float32([1.5, -np.inf, 7.0]).view(np.int32)
    inputs = inputs_of([{}] * 3, [[0, 2, 3], [1, 4, 0], values], [])
    edited = apply_bias(jnp.asarray(LOGITS), inputs)
    wanted = LOGITS.copy()
    wanted[0, 1], wanted[2, 4] = -2.5, -np.inf
    assert edited.tolist() == wanted.tolist()


@pytest.mark.slow
def test_what_is_not_allowed_is_out() -> None:
    for vocab in (5, 32, 33, 70):
        allowed = [[0, vocab - 1], [vocab // 2], list(range(vocab))]
        bits = jnp.asarray(np.stack([token_bits(one, vocab) for one in allowed]))
        logits = np.arange(3 * vocab, dtype=np.float32).reshape(3, vocab)
        edited = np.asarray(forbid_tokens(jnp.asarray(logits), bits))
        for row, given, tokens in zip(edited, logits, allowed, strict=True):
            assert row[tokens].tolist() == given[tokens].tolist()
            assert np.isneginf(np.delete(row, tokens)).all()
