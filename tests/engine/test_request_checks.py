"""What is refused before anything is allocated: each limit, and the last value inside of it."""

import logging
import math
from typing import Any

import numpy as np
import pytest

from jax_engine import InvalidRequestError, PoolingParams, RequestTooLargeError, SamplingParams
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.engine.pooling.pooling import PooledParams, PooledResults
from jax_engine.engine.requests import request as request_checks
from jax_engine.engine.requests.prompts import Prompt
from jax_engine.engine.requests.request import (
    Request,
    RequestChecks,
    check_embeds,
    check_service,
    own_params,
)
from jax_engine.engine.results import Results
from tests.support.builders import letters
from tests.support.strategies import EOS, VOCABULARY


def check(params: Any, prompt: Any = (0, 1), **changes: Any) -> Request:
    """Checks a request by an engine with the letters A and B."""
    given = {"tokenizer": letters(), "vocab_size": VOCABULARY, "max_model_len": 8,
             "eos_token_ids": frozenset([EOS]), "max_logprobs": 2} | changes  # fmt: skip
    prompt = list(prompt) if isinstance(prompt, tuple) else prompt
    return RequestChecks(**given).check("new", prompt, params)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"stop_token_ids": [3]}, r"stop_token_ids must hold token ids in \[0, 2\], got 3"),
        ({"logit_bias": {3: 1.0}}, "logit_bias must hold token ids"),
        ({"allowed_token_ids": [0, 3]}, "allowed_token_ids must hold token ids"),
        ({"logprob_token_ids": [3]}, "logprob_token_ids must hold token ids"),
        ({"trace_decode_token_ids": [3]}, "trace_decode_token_ids must hold token ids"),
        ({"logprobs": 3}, r"logprobs must be at most max_logprobs \(2\), got 3"),
        ({"logprobs": -1}, r"logprobs must be at most max_logprobs \(2\), got -1"),
        ({"prompt_logprobs": 3}, "prompt_logprobs must be at most"),
        ({"prompt_logprobs": -1}, "prompt_logprobs must be at most"),
        ({"prompt_logprobs": 3, "logprob_token_ids": [1]}, "prompt_logprobs must be at most"),
    ],
)
def test_what_the_model_does_not_have(params: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        check(SamplingParams(**params))


@pytest.mark.parametrize(
    "params",
    [
        {"stop_token_ids": [2], "logit_bias": {2: 1.0}, "allowed_token_ids": [0, 2]},
        {"logprobs": 2, "prompt_logprobs": 2},
        # These have a limit of their own, which is not the engine's.
        {"logprob_token_ids": [0, 1, 2]},
        {"logprob_token_ids": [0, 1, 2], "logprobs": 3},
    ],
)
def test_the_last_that_it_has(params: dict[str, Any]) -> None:
    assert check(SamplingParams(**params)).prompt.token_ids == [0, 1]


def test_an_engine_without_a_limit_gives_the_whole_vocabulary() -> None:
    params = SamplingParams(logprobs=-1, prompt_logprobs=VOCABULARY)
    assert check(params, max_logprobs=-1).params.logprobs == -1
    with pytest.raises(InvalidRequestError, match=r"max_logprobs \(3\), got 4"):
        check(SamplingParams(logprobs=4), max_logprobs=-1)


def test_params_are_copied_and_checked_again() -> None:
    """Whoever changes them later changes no request; what was changed before must be valid."""
    params = SamplingParams(stop_token_ids=[1], truncate_prompt_tokens=1)
    checked = check(params)
    assert checked.params is not params and checked.prompt.token_ids == [1]
    assert checked.group.constraints is None
    params.stop_token_ids.append(0)  # type: ignore[union-attr]
    assert checked.params.stop_token_ids == [1]
    params.temperature = -1.0
    with pytest.raises(InvalidRequestError, match="temperature"):
        check(params)
    with pytest.raises(InvalidRequestError, match="sampling_params must be SamplingParams, got"):
        check({"temperature": 0.0})


def test_a_pooling_request_has_results_of_its_own() -> None:
    params = PooledParams(pooling=PoolingParams())
    request = check(params)
    assert isinstance(request.results, PooledResults) and request.prompt == Prompt(None, [0, 1])
    assert isinstance(request.params, PooledParams) and request.params is not params
    output: Any = request.output(request.core_output(finished=True))
    assert (output.request_id, output.prompt_token_ids) == ("new", [0, 1])
    request = check(SamplingParams())
    assert type(request.results) is Results and request.prompt == Prompt(None, [0, 1])


def test_a_prompt_without_tokens_has_no_log_probabilities() -> None:
    embeds, wanted = Prompt(None, [0], embeds=np.zeros((1, 4))), SamplingParams(prompt_logprobs=0)
    with pytest.raises(InvalidRequestError, match="must be None with prompt_embeds, got 0"):
        check_embeds(embeds, wanted)
    check_embeds(embeds, SamplingParams())
    check_embeds(embeds, PoolingParams())
    check_embeds(Prompt(None, [0]), wanted)


def test_a_trace_is_replayed_and_beams_are_counted() -> None:
    assert check(SamplingParams(trace_decode_token_ids=[1, 0, 1])).params.max_tokens == 3
    wide = {"use_beam_search": True, "temperature": 0.0}
    with pytest.raises(RequestTooLargeError, match="looks at 66 candidates a step"):
        check(SamplingParams(n=33, **wide), vocab_size=100)
    check(SamplingParams(n=32, **wide), vocab_size=100)
    check(SamplingParams(n=33, **wide))  # of a vocabulary that the sampler gives as a whole
    check(SamplingParams(n=33), vocab_size=100)


@pytest.mark.parametrize(
    ("params", "most"),
    [
        (SamplingParams(), 4),
        (SamplingParams(num_speculative_tokens=9), 4),
        (SamplingParams(num_speculative_tokens=3), 3),
        (SamplingParams(num_speculative_tokens=0), 0),
        (SamplingParams(logits_processors=[lambda output, logits: logits]), 0),
        (SamplingParams(num_speculative_tokens=0, use_beam_search=True, n=2), 0),
        (PooledParams(pooling=PoolingParams()), 0),
    ],
)
def test_drafts_are_at_most_the_engine_s_and_none_where_they_cannot_be_used(
    params: SamplingParams, most: int
) -> None:
    prompt = {"prompt_token_ids": [0], "prediction": [1, 0]}
    speculation = SpeculativeConfig(method="ngram", num_speculative_tokens=4)
    group = check(params, prompt, speculation=speculation).group
    assert (group.max_drafts, group.prediction is not None) == (most, most > 0)
    assert check(params, prompt).group.max_drafts == 0, "an engine without speculation"


def test_stop_strings_need_a_tokenizer() -> None:
    check(SamplingParams(stop="A"))
    check(SamplingParams(stop=[]), tokenizer=None)
    with pytest.raises(InvalidRequestError, match="stop needs text"):
        check(SamplingParams(stop="A"), tokenizer=None)


MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("service", "words"),
    [
        ((MOST + 1, None), "priority must be in"),
        ((-MOST - 1, None), "priority must be in"),
        (("1", None), "priority must be an integer, got '1'"),
        ((0, 0.0), r"timeout must be in \(0.0, inf\), got 0.0"),
        ((0, math.inf), "timeout must be"),
        ((0, None, math.nan), "arrival_time must be finite"),
        ((0, None, "now"), "arrival_time must be a number"),
    ],
)
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_times_and_priorities_that_are_none(policy: str, service: Any, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        check_service(policy, *service)


def test_a_priority_that_has_no_effect_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    request_checks._warn_of_priority.cache_clear()
    with caplog.at_level(logging.WARNING, "jax_engine"):
        check_service("fcfs", 0, 1e-3, -5.0)
        check_service("priority", MOST, None)
        check_service("priority", -MOST, 0.5, 0.0)
        assert not caplog.records
        check_service("fcfs", 1, None)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("given", [SamplingParams(max_tokens=5), PoolingParams()])
def test_parameters_are_the_request_s_own(given: Any) -> None:
    own = own_params(given)
    assert own == given and own is not given


@pytest.mark.parametrize("given", [None, {"max_tokens": 5}, 3])
def test_what_are_no_parameters_stays_what_it_is(given: Any) -> None:
    assert own_params(given) is given
