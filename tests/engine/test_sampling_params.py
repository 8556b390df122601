"""SamplingParams: vLLM's defaults, and an error with field, value and range for each bad value."""

import numpy as np
import pytest

from jax_engine import InvalidRequestError, PoolingParams, SamplingParams
from jax_engine.engine.pooling.pooling import PooledParams
from jax_engine.sampling_params import per_prompt


def test_the_defaults_are_vllm_s() -> None:
    params = SamplingParams()
    assert (params.n, params.best_of, params.max_tokens, params.min_tokens) == (1, None, 16, 0)
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (1.0, 1.0, 0, 0.0)
    assert (params.presence_penalty, params.frequency_penalty) == (0.0, 0.0)
    assert params.repetition_penalty == 1.0
    assert (params.seed, params.logprobs, params.logit_bias) == (None, None, None)
    assert [SamplingParams(seed=seed).seed for seed in (-1, -2, 0)] == [None, -2, 0]
    assert params.detokenize and params.skip_special_tokens and not params.ignore_eos


BAD = [
    ({"n": 0}, "n must be at least 1, got 0"),
    ({"n": 1.5}, "n must be an integer, got 1.5"),
    ({"n": True}, "n must be an integer"),
    ({"n": 3, "best_of": 2}, r"best_of must be at least 3 \(n is 3\), got 2"),
    ({"temperature": -0.1}, r"temperature must be in \[0.0, inf\), got -0.1"),
    ({"temperature": float("nan")}, "temperature"),
    ({"temperature": "1"}, "temperature must be a number, got '1'"),
    ({"temperature": 0.0, "n": 2}, "must be 1 when temperature is 0"),
    ({"top_p": 0.0}, r"top_p must be in \(0.0, 1.0\], got 0.0"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_k": -2}, "top_k must be at least -1, got -2"),
    ({"min_p": 1.5}, r"min_p must be in \[0.0, 1.0\], got 1.5"),
    ({"top_n_sigma": -1.0}, r"top_n_sigma must be in \[0.0, inf\), got -1.0"),
    ({"top_n_sigma": float("nan")}, "top_n_sigma must be in .*, got nan"),
    ({"top_n_sigma": 1.0, "use_beam_search": True}, "top_n_sigma must be 0.0 with use_beam_search"),
    ({"presence_penalty": 2.1}, r"presence_penalty must be in \[-2.0, 2.0\], got 2.1"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"repetition_penalty": 0.0}, r"repetition_penalty must be in \(0.0, inf\), got 0.0"),
    ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"min_tokens": 17}, r"min_tokens must be at most max_tokens \(16\), got 17"),
    ({"length_penalty": 32.5}, r"length_penalty must be in \[-32.0, 32.0\], got 32.5"),
    ({"stop": "a", "use_beam_search": True}, "stop must be left out with use_beam_search, got 'a'"),
    ({"logprobs": -2}, "logprobs must be at least -1, got -2"),
    ({"prompt_logprobs": "5"}, "prompt_logprobs must be an integer or None, got '5'"),
    ({"logprob_token_ids": []}, "logprob_token_ids must hold 1 to 128 ids, got 0"),
    ({"logprob_token_ids": [1], "logprobs": 3}, "logprobs must be left out"),
    ({"stop": 5}, "stop must be a string or a list of strings or None, got 5"),
    ({"stop": ["a", b"b"]}, r"stop\[1\] must be a string, got b'b'"),
    ({"stop": "a\ud800"}, "stop must be valid Unicode .* at character 1"),
    ({"stop_token_ids": ["a"]}, r"stop_token_ids\[0\] must be an integer, got 'a'"),
    ({"allowed_token_ids": 3}, "allowed_token_ids must be a list of integers or None, got 3"),
    ({"logit_bias": [(1, 2)]}, "logit_bias must be a dict or None"),
    ({"logits_processors": print}, "logits_processors must be a list of callables or None"),
    ({"bad_words": "x"}, "bad_words must be a list of strings or None, got 'x'"),
    ({"output_kind": "DELTA"}, "output_kind must be one of RequestOutputKind.CUMULATIVE"),
    ({"detokenize": 1}, "detokenize must be True or False, got 1"),
    ({"n": 10**5000}, "n must be an integer of 64 bits, got an object of type int"),
    ({"temperatures": 1.0}, "not a field of SamplingParams; did you mean temperature?"),
    ({"seed": "x"}, "seed must be an integer"),
    ({"stop": ""}, "non-empty"),
    ({"stop": ["a", ""]}, "non-empty"),
    ({"stop": "a", "detokenize": False}, "detokenize=True"),
    ({"stop_token_ids": [-1]}, "stop_token_ids must be at least 0, got -1"),
    ({"logit_bias": {"x": 1.0}}, "token ids as keys"),
    ({"logit_bias": {5: float("inf")}}, "logit_bias must be finite"),
]


@pytest.mark.parametrize(("fields", "words"), BAD)
def test_each_bad_value_is_named_with_its_range(fields, words) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        SamplingParams(**fields)


def test_one_sample_or_several_beams_may_be_greedy() -> None:
    assert SamplingParams(temperature=0.0, n=1).greedy
    beams = SamplingParams(temperature=0.0, n=2, use_beam_search=True, length_penalty=-32.0)
    assert beams.num_samples == 2


def test_numpy_s_numbers_and_json_s_keys_are_fine() -> None:
    params = SamplingParams(
        n=np.int64(2), temperature=np.float32(0.5), logit_bias={"5": 1000, 6: -1000}
    )
    assert params.num_samples == 2
    assert params.logit_bias == {5: 100.0, 6: -100.0}
    params = SamplingParams(stop=("a", "b"), stop_token_ids=np.array([3, 4]), top_k=np.int8(2))
    assert (params.stop, params.stop_token_ids, params.top_k) == (["a", "b"], [3, 4], 2)
    assert all(type(one) is int for one in params.stop_token_ids)


def test_optional_numbers_and_copies() -> None:
    """vLLM's `from_optional` takes None for a number's default, and only for a number's."""
    params = SamplingParams.from_optional(temperature=None, n=None, max_tokens=None, stop=["x"])
    assert params == SamplingParams(max_tokens=None, stop=["x"])
    params.logits_processors = [print]
    copied = params.clone()
    assert copied == params and copied.stop is not params.stop
    params.skip_clone = True
    assert params.clone().stop is params.stop


def test_a_field_that_is_set_later_is_checked_when_it_is_used() -> None:
    params = SamplingParams()
    params.temperature = "warm"
    with pytest.raises(InvalidRequestError, match="temperature must be a number, got 'warm'"):
        params.__post_init__()


def test_one_params_for_all_or_one_each() -> None:
    one = SamplingParams()
    assert per_prompt(one, 3) == [one] * 3
    assert per_prompt(None, 2) == [SamplingParams()] * 2
    with pytest.raises(InvalidRequestError, match="one for each of the 2 prompts, got 3"):
        per_prompt([one] * 3, 2)


def test_who_wants_something_of_each_prompt_token() -> None:
    assert SamplingParams(prompt_logprobs=0).wants_prompt and not SamplingParams().wants_prompt
    assert PooledParams(pooling=PoolingParams(task="embed")).wants_prompt
