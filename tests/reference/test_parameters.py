"""Parameters by hand: one form of each meaning, and what is refused by name."""

from enum import Enum
from typing import Any

import pytest

from reference.parameters import BadParameters, Parameters, parameters, wrong


class Kind(Enum):
    DELTA = 1


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ({}, {}),
        ({"stop": None, "stop_token_ids": None, "logit_bias": None, "best_of": None}, {}),
        ({"stop": "ab"}, {"stop": ("ab",)}),
        ({"stop": ["a", "b"], "stop_token_ids": [3]}, {"stop": ("a", "b"), "stop_token_ids": (3,)}),
        ({"top_k": -1}, {}),
        ({"top_k": 3, "top_p": 0.5}, {"top_k": 3, "top_p": 0.5}),
        ({"temperature": 0.99e-5, "top_k": 3, "top_p": 0.5, "min_p": 1}, {"temperature": 0.0}),
        ({"temperature": 0.0, "top_n_sigma": 1.0}, {"temperature": 0.0}),
        ({"top_n_sigma": 20}, {"top_n_sigma": 20}),
        ({"temperature": 1e-5, "top_k": 3}, {"temperature": 1e-5, "top_k": 3}),
        ({"seed": -1}, {}),
        ({"seed": 2**64 - 1}, {"seed": 2**64 - 1}),
        ({"seed": -(2**63)}, {"seed": 2**63}),
        ({"n": 2, "best_of": 2}, {"n": 2}),
        ({"best_of": 2}, {"best_of": 2}),
        ({"logit_bias": {"7": 101, 8: -101.0}}, {"logit_bias": {7: 100.0, 8: -100.0}}),
        (
            {"logprob_token_ids": [3, 4], "logprobs": 2},
            {"logprob_token_ids": (3, 4), "logprobs": 2},
        ),
        ({"max_tokens": None, "min_tokens": 99}, {"max_tokens": None, "min_tokens": 99}),
        ({"output_kind": Kind.DELTA}, {"output_kind": "DELTA"}),
        (
            {"use_beam_search": True, "n": 2, "temperature": 0.0, "output_kind": Kind.DELTA},
            {"use_beam_search": True, "n": 2, "temperature": 0.0, "output_kind": "FINAL_ONLY"},
        ),
    ],
)
def test_one_form(given: dict[str, Any], changes: dict[str, Any]) -> None:
    assert parameters(**given).changes() == changes


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"n": 0, "top_k": -2, "top_p": 0.0, "min_p": 1.1}, {"n", "top_k", "top_p", "min_p"}),
        ({"top_n_sigma": -0.1}, {"top_n_sigma"}),
        ({"top_n_sigma": float("inf")}, {"top_n_sigma"}),
        ({"n": True, "temperature": False}, {"n", "temperature"}),
        ({"n": 2.0, "temperature": "1"}, {"n", "temperature"}),
        ({"n": 16385}, {"n"}),
        ({"n": None, "temperature": None}, {"n", "temperature"}),
        (
            {"temperature": float("inf"), "repetition_penalty": 0},
            {"temperature", "repetition_penalty"},
        ),
        (
            {"presence_penalty": -2.1, "frequency_penalty": 2.1},
            {"presence_penalty", "frequency_penalty"},
        ),
        ({"seed": 2**64}, {"seed"}),
        ({"seed": -(2**63) - 1}, {"seed"}),
        ({"stop": ""}, {"stop"}),
        ({"stop": ["a", ""]}, {"stop"}),
        ({"stop": ["a", b"b"]}, {"stop"}),
        ({"stop": "a", "detokenize": False}, {"stop"}),
        ({"stop": [], "detokenize": False}, set()),
        (
            {"stop_token_ids": [-1], "allowed_token_ids": []},
            {"stop_token_ids", "allowed_token_ids"},
        ),
        ({"logprob_token_ids": []}, {"logprob_token_ids"}),
        ({"logprob_token_ids": range(129)}, {"logprob_token_ids"}),
        ({"logprob_token_ids": [1.5]}, {"logprob_token_ids"}),
        ({"logprob_token_ids": [1], "logprobs": 0}, {"logprobs"}),
        ({"logit_bias": {"x": 1.0}}, {"logit_bias"}),
        ({"logit_bias": {1: float("nan")}}, {"logit_bias"}),
        ({"n": 2, "best_of": 1}, {"best_of"}),
        ({"n": 2, "best_of": 3, "output_kind": "DELTA"}, {"best_of"}),
        ({"n": 2, "best_of": 2, "output_kind": "DELTA"}, set()),
        ({"best_of": 2, "temperature": 0.0}, {"best_of"}),
        ({"min_tokens": 17}, {"min_tokens"}),
        ({"min_tokens": 17, "max_tokens": None}, set()),
        (
            {
                "use_beam_search": True, "top_n_sigma": 1.0, "top_k": 1, "top_p": 0.9, "min_p": 0.1,
                "stop": "a", "logprobs": 0, "logprob_token_ids": [1],
            },
            {"top_n_sigma", "top_k", "top_p", "min_p", "stop", "logprobs", "logprob_token_ids"},
        ),
        ({"use_beam_search": True, "n": 3, "temperature": 0.0, "top_k": -1}, set()),
    ],
)  # fmt: skip
def test_what_is_refused(given: dict[str, Any], names: set[str]) -> None:
    assert wrong(**given) == names
    if names:
        with pytest.raises(BadParameters, match=", ".join(sorted(names))):
            parameters(**given)


def test_what_is_ranked() -> None:
    assert Parameters(n=1, best_of=2).ranked and not Parameters(n=2).ranked
    assert not Parameters(n=1, best_of=2, use_beam_search=True).ranked
