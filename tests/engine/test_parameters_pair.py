"""`SamplingParams` and the oracle's parameters: the same is refused, and means the same."""

import math
from typing import Any

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from jax_engine import InvalidRequestError, RequestOutputKind, SamplingParams
from reference.parameters import FILTERS, Parameters, parameters, wrong

INTEGERS = [-3, -2, -1, 0, 1, 2, 3, 16, 17, 64, 65, 16384, 16385, 2**63, 2**64 - 1, True, None, 1.5]
FLOATS = [-32.5, -2.0, -0.1, 0.0, 0.99e-5, 1e-5, 0.5, 1.0, 1.1, 2.0, 2.1, 33.0, math.inf, math.nan]
TOKENS = [None, [], [0], [5, 9], [-1], list(range(128)), list(range(129))]
VALUES: dict[str, list[Any]] = {
    "n": INTEGERS,
    "best_of": INTEGERS,
    "top_k": INTEGERS,
    "max_tokens": INTEGERS,
    "min_tokens": INTEGERS,
    "logprobs": INTEGERS,
    "prompt_logprobs": INTEGERS,
    "thinking_token_budget": INTEGERS,
    "seed": [*INTEGERS, -(2**63), -(2**63) - 1, 2**64],
    "temperature": FLOATS,
    "top_p": FLOATS,
    "min_p": FLOATS,
    "top_n_sigma": FLOATS,
    "repetition_penalty": FLOATS,
    "presence_penalty": FLOATS,
    "frequency_penalty": FLOATS,
    "length_penalty": FLOATS,
    "stop": [None, [], "", "a", ["a"], ["a", "bc"], ["a", ""]],
    "stop_token_ids": TOKENS,
    "allowed_token_ids": TOKENS,
    "logprob_token_ids": TOKENS,
    "logit_bias": [None, {}, {3: 1.0}, {"3": 101}, {4: -1e9}, {"x": 1.0}, {3: math.inf}, {-1: 0.0}],
    "output_kind": list(RequestOutputKind),
    "detokenize": [True, False],
    "skip_special_tokens": [True, False],
    "include_stop_str_in_output": [True, False],
    "ignore_eos": [True, False],
    "use_beam_search": [True, False],
    "early_stopping": [True, False, "never"],
}
NAMED = [
    "n", "num_samples", "max_tokens", "min_tokens", "ignore_eos", "detokenize",
    "skip_special_tokens", "include_stop_str_in_output", "logprobs", "prompt_logprobs",
    "thinking_token_budget",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "use_beam_search",
    "length_penalty", "early_stopping",
]  # fmt: skip
LISTS = ["stop_token_ids", "allowed_token_ids", "logprob_token_ids"]
# Most values are fine by themselves, or hardly any combination would be.
FINE = {name: [one for one in VALUES[name] if not wrong(**{name: one})] for name in VALUES}


@st.composite
def settings(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=8))
    given = {name: draw(st.sampled_from(FINE[name])) for name in names}
    if names and draw(st.booleans()):
        odd = draw(st.sampled_from(names))
        given[odd] = draw(st.sampled_from(VALUES[odd]))
    return given


@given(settings())
@example({"top_p": 0.9995, "seed": -1, "top_k": -1})
@example({"n": 2, "best_of": 2, "output_kind": RequestOutputKind.DELTA})
@example({"n": 2, "best_of": 3, "output_kind": RequestOutputKind.DELTA})
@example({"temperature": 0.99e-5, "n": 2})
@example({"temperature": 0.0, "best_of": 2})
@example({"logprob_token_ids": [5, 9], "logprobs": 2})
@example({"temperature": 1e-5, "n": 2, "best_of": 3})
@example({"use_beam_search": True, "n": 3, "temperature": 0.0, "best_of": 4, "top_k": -1})
@example({"use_beam_search": True, "n": 2, "output_kind": RequestOutputKind.DELTA})
@example({"use_beam_search": True, "logprobs": 0})
@example({"stop_token_ids": [5, 9]})
@example({"stop": "a", "detokenize": False})
@example({"max_tokens": None, "min_tokens": 17})
@example({"max_tokens": 16, "min_tokens": 17})
def test_the_same_is_refused_and_the_rest_means_the_same(given: dict[str, Any]) -> None:
    refused = wrong(**given)
    event("refused" if refused else "accepted")
    try:
        params = SamplingParams(**given)
    except InvalidRequestError as error:
        name = str(error).replace("[", " ").split()[0]
        same = {"n", "best_of"}  # too many samples: the oracle does not say by which of the two
        assert (same if name in same else {name}) & refused, f"{error} {refused}"
        return
    assert not refused
    assert meaning(params) == meaning_of(parameters(**given))
    again = params.clone()
    assert again == params and meaning(again) == meaning(params)


def meaning(params: SamplingParams) -> dict[str, Any]:
    """What the engine reads of its own object."""
    return _as_named(params) | {
        "stop": params.stop_strings,
        "logit_bias": params.logit_bias or {},
        "temperature": 0.0 if params.greedy else params.temperature,
        "filters": None if params.greedy else _filters(params),
        "seed": None if params.seed is None else params.seed % 2**64,
        "deltas": params.gives_deltas,
        "sums": params.needs_logprobs,
    }


def meaning_of(params: Parameters) -> dict[str, Any]:
    """The same of the oracle's."""
    wanted = params.logprobs is not None or params.logprob_token_ids is not None
    return _as_named(params) | {
        "stop": list(params.stop),
        "logit_bias": params.logit_bias,
        "temperature": params.temperature,
        "filters": None if params.temperature == 0.0 else _filters(params),
        "seed": params.seed,
        "deltas": params.output_kind == "DELTA",
        "sums": wanted or params.ranked or params.use_beam_search,
    }


def _filters(params: SamplingParams | Parameters) -> dict[str, Any]:
    filters = {name: getattr(params, name) for name in FILTERS}
    return filters | {"top_k": max(0, params.top_k)}


def _as_named(params: SamplingParams | Parameters) -> dict[str, Any]:
    given = {name: getattr(params, name) for name in (*NAMED, *LISTS)}
    return given | {name: list(given[name] or ()) for name in LISTS}


@pytest.mark.parametrize("copied", [False, True])
def test_what_is_changed_later_is_checked_when_it_is_used(copied: bool) -> None:
    """A copy is checked as well: nothing unchecked reaches the sampler."""
    params = SamplingParams(stop=["a"], stop_token_ids=[3], logit_bias={3: 1.0})
    other = params.clone() if copied else params
    other.top_p = 7.0
    with pytest.raises(InvalidRequestError, match="top_p"):
        other.__post_init__()
    assert not copied or params.top_p == 1.0
    if copied:
        other.stop.append("b")
        other.stop_token_ids.append(4)
        other.logit_bias[4] = 1.0
        assert (params.stop, params.stop_token_ids, params.logit_bias) == (["a"], [3], {3: 1.0})


def test_lists_that_were_given_stay_the_caller_s() -> None:
    given: dict[str, list[Any]] = {
        "stop": ["a"], "stop_token_ids": [3], "allowed_token_ids": [3], "logprob_token_ids": [3],
        "bad_words": ["a"], "trace_decode_token_ids": [3], "logits_processors": [print],
    }  # fmt: skip
    before = {name: list(value) for name, value in given.items()}
    params = SamplingParams(**given)
    for value in given.values():
        value.append(value[0])
    assert {name: getattr(params, name) for name in given} == before


def test_what_from_optional_takes_none_for() -> None:
    assert SamplingParams.from_optional(max_tokens=None, seed=None).max_tokens is None
    assert SamplingParams.from_optional(top_k=None, n=None, min_p=None) == SamplingParams()
