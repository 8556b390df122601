"""The packed row of a request: each declared number reaches the device as the oracle reads it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine import SamplingParams
from jax_engine.sampling.sampling_inputs import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    ROW_WIDTH,
    WANTS_PROCESSED,
    WANTS_RAW,
    first_rows,
    row_fields,
    sampling_row,
    unpack_sampling,
)
from reference.parameters import parameters

NOTHING = np.zeros((3, 0), np.int32)
_unpack = jax.jit(unpack_sampling)


@st.composite
def numbers(draw: st.DrawFn) -> dict[str, Any]:
    """A value in the range of each number."""
    given: dict[str, Any] = {}
    for name, number in NUMBERS.items():
        if number.is_integer:
            given[name] = draw(st.integers(int(number.low), 2**63))
        else:
            high = 1e6 if number.high is None else number.high
            given[name] = draw(st.floats(number.low, high, exclude_min=number.open_low))
    return given


@given(numbers())
@example({"temperature": 0.99e-5})
@example({"temperature": 1e-5, "top_k": -1})
@example({"top_k": 2**31})
def test_each_number_arrives(given: dict[str, Any]) -> None:
    row = sampling_row(SamplingParams(**given), 7)
    inputs = _unpack(jnp.asarray(row[None]), jnp.array([5]), NOTHING, NOTHING)
    wanted = parameters(**given)
    assert (inputs.temperature[0] > 0) == (wanted.temperature > 0)
    if wanted.temperature == 0:  # greedy: no other number counts
        return
    for name, number in NUMBERS.items():
        found, value = np.asarray(getattr(inputs, name))[0], getattr(wanted, name)
        exact = min(value, 2**31 - 1) if number.is_integer else np.float32(value)
        assert found == exact, name


@pytest.mark.parametrize("name", NUMBERS)
def test_no_number_takes_the_place_of_another(name: str) -> None:
    default, one = SamplingParams(), SamplingParams(**{name: 0.5 if name != "top_k" else 3})
    changed = np.flatnonzero(sampling_row(default, 7) != sampling_row(one, 7))
    inputs = _unpack(jnp.asarray(sampling_row(one, 7)[None]), jnp.array([5]), NOTHING, NOTHING)
    assert len(changed) == 1 and getattr(inputs, name)[0] == getattr(one, name)


@pytest.mark.parametrize(
    "seed", [0, 5, 2**32 - 1, 2**32, 2**63 + 2**31 + 5, 2**64 - 1, -2, -(2**63)]
)
def test_all_bits_of_a_seed_arrive(seed: int) -> None:
    row = sampling_row(SamplingParams(), seed)
    inputs = _unpack(jnp.asarray(row[None]), jnp.array([5]), NOTHING, NOTHING)
    assert inputs.seed.dtype == jnp.uint32
    assert inputs.seed.tolist() == [[seed // 2**32 % 2**32, seed % 2**32]]


def test_each_word_of_a_row_belongs_to_one_field() -> None:
    places = row_fields()
    words = [word for place in places.values() for word in range(place.start, place.stop)]
    assert words == list(range(ROW_WIDTH)) and list(places) == ["seed", *INTEGERS, *FLOATS]
    assert sampling_row(SamplingParams(), 0).shape == (ROW_WIDTH,)


def test_log_probabilities_are_of_what_the_request_compares() -> None:
    asked = SamplingParams(logprobs=2)
    beams = SamplingParams(use_beam_search=True, n=2, best_of=2, temperature=0.0)
    for params, wants in [(SamplingParams(), 0), (asked, WANTS_RAW), (beams, WANTS_PROCESSED)]:
        row = sampling_row(params, 7)
        assert row[row_fields()["want_logprobs"]].tolist() == [wants]


def test_sparse_entries_arrive_as_they_are() -> None:
    rows = jnp.asarray(np.stack([sampling_row(SamplingParams(top_k=k), k) for k in (1, 2, 3)]))
    values = np.float32([0.5, -np.inf])
    bias = np.stack([[1, 2], [7, 8], values.view(np.int32)]).astype(np.int32)
    history = np.array([[0, 1, 3], [4, 5, 6], [1, 0, 1]], np.int32)
    inputs = _unpack(rows, jnp.array([5, 6, 9]), bias, history)
    assert inputs.position.tolist() == [5, 6, 9] and inputs.top_k.tolist() == [1, 2, 3]
    assert (inputs.bias_row.tolist(), inputs.bias_token.tolist()) == ([1, 2], [7, 8])
    assert inputs.bias_value.tolist() == [0.5, -np.inf]
    assert inputs.history_row.tolist() == [0, 1, 3] and inputs.history_token.tolist() == [4, 5, 6]
    assert inputs.history_is_output.tolist() == [1, 0, 1]
    first = first_rows(inputs, 2)
    assert first.position.tolist() == [5, 6] and first.seed.shape == (2, 2)
    assert first.top_k.tolist() == [1, 2] and first.temperature.shape == (2,)
    assert first.bias_row.tolist() == [1, 2] and first.history_row.tolist() == [0, 1, 3]
