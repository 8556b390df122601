"""The packed row of a request: each declared number reaches the device as the oracle reads it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine import SamplingParams
from jax_engine.sampling.inputs import NUMBERS, sampling_row, unpack_sampling
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
