"""What a worker is told of a request, word by word."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine import PoolingParams, SamplingParams
from jax_engine.engine.pooling.pooling import PooledParams
from jax_engine.engine.running_requests import derive_seed, request_seed, request_setup
from jax_engine.sampling.sampling_inputs import sampling_row
from jax_engine.step import RequestSetup
from reference import random_numbers

EOS = frozenset([2, 7])
FLAGS = {
    one.name for one in fields(RequestSetup) if one.type is bool or one.type == "bool"
}  # fmt: skip


def setup_of(params: SamplingParams, seed: int = 5) -> RequestSetup:
    return request_setup(9, [1, 2, 3], params, seed, EOS)


def flags(params: SamplingParams) -> set[str]:
    found = setup_of(params)
    assert found.prompt_logprobs == params.prompt_logprobs
    asked = set() if found.prompt_logprobs is None else {"prompt_logprobs"}
    return asked | {name for name in FLAGS if getattr(found, name)}


def pooled(**changes: Any) -> PooledParams:
    return PooledParams(pooling=PoolingParams(**changes))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: SamplingParams(), set()),
        (lambda: SamplingParams(logit_bias={1: 2.0}), {"edits_logits"}),
        (lambda: SamplingParams(min_tokens=1), {"edits_logits"}),
        (lambda: SamplingParams(presence_penalty=0.5), {"edits_logits", "has_penalties"}),
        (lambda: SamplingParams(logprobs=0), {"wants_logprobs"}),
        (lambda: SamplingParams(logprobs=-1), {"wants_logprobs", "needs_logits", "is_special"}),
        (lambda: SamplingParams(best_of=2), {"wants_logprobs"}),
        (lambda: SamplingParams(prompt_logprobs=0), {"prompt_logprobs", "is_special"}),
        (lambda: SamplingParams(prompt_logprobs=21), {"prompt_logprobs", "is_special"}),
        (lambda: SamplingParams(prompt_logprobs=-1), {"prompt_logprobs", "is_special"}),
        (lambda: pooled(), {"pooling", "is_special"}),
        (lambda: pooled(task="token_embed"), {"pooling", "token_states", "is_special"}),
    ],
)
def test_what_a_request_needs(make: Callable[[], SamplingParams], expected: set[str]) -> None:
    assert len(FLAGS) == 7 and flags(make()) == expected


def test_words() -> None:
    params = SamplingParams(
        n=2, best_of=3, min_tokens=4, logit_bias={5: -1.5, 4: 100.0}, stop_token_ids=[3, 7]
    )
    found = setup_of(params)
    assert (found.number, found.prompt_token_ids, found.min_tokens) == (9, [1, 2, 3], 4)
    assert found.rows.shape[0] == 3
    for i in range(3):
        seed = random_numbers.derive_seed(5, i)
        np.testing.assert_array_equal(found.rows[i], sampling_row(params, seed))
    assert found.bias[0].tolist() == [5, 4]
    assert found.bias[1].view(np.float32).tolist() == [-1.5, 100.0]
    assert found.forbidden[0].tolist() == [2, 3, 7]
    assert found.forbidden[1].view(np.float32).tolist() == [-np.inf] * 3
    plain = setup_of(SamplingParams())
    assert plain.bias.shape == (2, 0) and plain.forbidden[0].tolist() == [2, 7]


@given(st.integers(-(2**63), 2**64 - 1), st.integers(0, 2**14))
def test_seeds_of_samples_are_the_oracle_s(seed: int, sample: int) -> None:
    derived = derive_seed(seed, sample)
    assert derived == random_numbers.derive_seed(seed, sample) % 2**64
    assert 0 <= derived < 2**64 and (sample == 0 or derived < 2**63)
    assert derive_seed(2**64 - 1, 0) == 2**64 - 1


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**20))
def test_seeds_of_requests_are_the_oracle_s(engine_seed: int, number: int) -> None:
    drawn = request_seed(SamplingParams(), engine_seed, number)
    assert drawn == random_numbers.request_seed(None, engine_seed, number)
    assert request_seed(SamplingParams(seed=0), engine_seed, number) == 0
