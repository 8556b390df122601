"""What the host says of a step: enough for every row, and no branch is left to the device."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine import SamplingParams
from jax_engine.operations import xla
from jax_engine.sampling.sampler import SamplerOutput, sample
from jax_engine.sampling.sampling_inputs import (
    ALL_STAGES,
    USUAL,
    SamplerStages,
    branch,
    sampling_row,
    stages_needed,
    unpack_sampling,
)

VOCAB = 400
HISTORY = np.array([[0, 1, 9], [3, 5, 0], [1, 0, 0]], np.int32)  # the last entry is padding
NO_BIAS = np.zeros((3, 0), np.int32)

some_settings = st.fixed_dictionaries(
    {"temperature": st.sampled_from([0.0, 0.0, 0.7, 1.5])},
    optional={
        "top_k": st.sampled_from([0, 1, 7, 256, 257, 390, 5000]),
        "top_p": st.sampled_from([1.0, 0.9, 0.3]),
        "min_p": st.sampled_from([0.0, 0.1]),
        "top_n_sigma": st.sampled_from([0.0, 1.0, 2.0]),
        "logprobs": st.sampled_from([None, 0, 3]),
        "presence_penalty": st.sampled_from([0.0, 1.0]),
    },
)


def packed(settings: list[dict[str, Any]]) -> np.ndarray:
    return np.stack([sampling_row(SamplingParams(**one), 5) for one in settings])


def sampled(logits: Any, rows: np.ndarray, asks: SamplerStages | None) -> SamplerOutput:
    position = jnp.arange(len(rows), dtype=jnp.int32)
    packed = map(jnp.asarray, (rows, position, NO_BIAS, HISTORY))
    inputs = unpack_sampling(*packed)
    return sample(
        logits, dataclasses.replace(inputs, asks=asks), draw=xla.draw, logsumexp=xla.logsumexp
    )


_sampled = jax.jit(sampled, static_argnames="asks")


@pytest.mark.slow
@given(settings=st.lists(some_settings, min_size=3, max_size=3), seed=st.integers(0, 2**16))
def test_the_host_asks_for_enough(settings: list[dict[str, Any]], seed: int) -> None:
    """The outputs are those of a device that finds out by itself."""
    logits = jnp.asarray(np.random.default_rng(seed).normal(0, 2, (3, VOCAB)), jnp.float32)
    rows = packed(settings)
    mine, found = _sampled(logits, rows, stages_needed(rows)), _sampled(logits, rows, None)
    for name in ("token_ids", "ranks", "top_token_ids"):
        np.testing.assert_array_equal(getattr(mine, name), getattr(found, name))
    np.testing.assert_allclose(mine.logprobs, found.logprobs, rtol=1e-6)


def test_processed_logits_are_drawn_from_and_the_model_s_are_told() -> None:
    logits = np.float32([[3.0, 1.0, 0.0], [0.0, 2.0, 1.0]])
    processed = jnp.float32([[0.0, 0.0, 1.0], [5.0, 2.0, 1.0]])
    rows, position = packed([{"temperature": 0.0, "logprobs": 0}] * 2), jnp.zeros(2, jnp.int32)
    inputs = unpack_sampling(
        jnp.asarray(rows), position, jnp.asarray(NO_BIAS), jnp.asarray(NO_BIAS)
    )
    found = sample(jnp.asarray(logits), inputs, processed, draw=xla.draw, logsumexp=xla.logsumexp)
    assert found.token_ids.tolist() == [2, 0]
    np.testing.assert_allclose(
        found.logprobs, [-np.log(np.exp(row).sum()) for row in logits], rtol=1e-6
    )
    assert found.ranks.tolist() == [3, 3]


@pytest.mark.parametrize("settings", [{"top_n_sigma": 0.1}, {"top_k": 1}, {"top_p": 0.01}])
def test_a_filter_that_is_alone_in_its_step_filters(settings: dict[str, Any]) -> None:
    """It leaves one token, which is not the one that would be drawn without it."""
    logits = np.zeros((3, VOCAB), np.float32)
    logits[:, VOCAB - 1] = 2.0
    for one, same in (({}, False), (settings, True)):
        rows = packed([one] * 3)
        tokens = _sampled(logits, rows, stages_needed(rows)).token_ids
        assert (np.asarray(tokens) == VOCAB - 1).all() == same


@pytest.mark.parametrize("host_decides", [False, True])
def test_a_penalty_counts_whoever_decides(host_decides: bool) -> None:
    """The first row's output has token 3, and no other row's has."""
    logits = np.zeros((3, VOCAB), np.float32)
    logits[:, 3], logits[:, 7] = 2.0, 1.0
    rows = packed([{"temperature": 0.0, "presence_penalty": 1.5}] * 3)
    asks = stages_needed(rows) if host_decides else None
    assert _sampled(logits, rows, asks).token_ids.tolist() == [7, 3, 3]


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, "draws"),  # vLLM's default temperature is 1
        ({"temperature": 0.0}, ""),
        ({"temperature": 0.0, "top_k": 5, "top_p": 0.5, "top_n_sigma": 1.0}, ""),
        ({"temperature": 0.0, "top_k": 5000}, ""),
        ({"temperature": 0.0, "logprobs": 1}, "logprobs"),
        ({"top_k": 256}, "draws shortlist"),
        ({"top_k": 257}, "draws shortlist long_list"),
        ({"top_p": 0.9}, "draws shortlist nucleus"),
        ({"top_n_sigma": 1.0}, "draws deviation"),
        ({"min_p": 0.5}, "draws"),
    ],
    ids=str,
)
def test_one_row_asks_for_what_it_needs_and_another_adds_nothing(
    settings: dict[str, Any], wanted: str
) -> None:
    for rows in (packed([settings]), packed([{"temperature": 0.0}, settings])):
        asks = stages_needed(rows)
        assert [name for name, value in asks._asdict().items() if value] == wanted.split()
    assert stages_needed(packed([settings])[:0]) == SamplerStages()


@pytest.mark.parametrize("asks", [*USUAL, ALL_STAGES])
def test_no_branch_is_left_to_the_device(asks: SamplerStages) -> None:
    logits, rows = jnp.zeros((3, VOCAB)), packed([{}] * 3)
    decided = _sampled.lower(logits, rows, asks).as_text()
    assert "stablehlo.case" not in decided and "stablehlo.if" not in decided
    assert "stablehlo.case" in _sampled.lower(logits, rows, None).as_text()


def test_a_branch_that_is_known_is_not_looked_for() -> None:
    def never() -> Any:
        raise AssertionError("nobody may look")

    assert branch(True, never, lambda: 1, never) == 1
    assert branch(False, never, never, lambda: 2) == 2
    assert branch(None, lambda: jnp.bool_(True), lambda: jnp.int32(3), lambda: jnp.int32(4)) == 3
