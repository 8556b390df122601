"""`tokenization_kwargs`, with Hugging Face's names and meaning."""

from typing import Any

import pytest

from jax_engine import InvalidRequestError
from jax_engine.engine.requests.prompts import TokenizationOptions, cut_tokens, tokenized


class Marked:
    """A tokenizer that writes 0 before a text; a is 1, b is 2."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [0] * add_special_tokens + [ord(one) - ord("a") + 1 for one in text]


def ids(kwargs: Any, **defaults: Any) -> Any:
    (prompt,) = tokenized(["abcd"], Marked(), kwargs, **defaults)  # type: ignore[arg-type]
    assert isinstance(prompt, dict) and prompt["prompt"] == "abcd"
    return prompt["prompt_token_ids"]


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({"add_special_tokens": True}, [0, 1, 2, 3, 4]),
        ({"add_special_tokens": False}, [1, 2, 3, 4]),
        ({"max_length": 2}, [0, 1, 2, 3, 4]),
        ({"truncation": True}, [0, 1, 2, 3, 4]),
        ({"truncation": False, "max_length": 2}, [0, 1, 2, 3, 4]),
        ({"truncation": True, "max_length": 2}, [0, 1]),
        ({"truncation": True, "max_length": 1}, [0]),
        ({"truncation": True, "max_length": 2, "truncation_side": "left"}, [3, 4]),
        ({"truncate_prompt_tokens": 1}, [4]),
        ({"truncate_prompt_tokens": 3, "truncation": True, "max_length": 1}, [2, 3, 4]),
    ],
)
def test_texts_become_tokens(kwargs: dict[str, Any], expected: list[int]) -> None:
    assert ids(kwargs) == expected


@pytest.mark.parametrize(
    ("keep", "around", "left", "right"),
    [
        (9, (0, 0), [0, 1, 2, 3, 8], [0, 1, 2, 3, 8]),
        (6, (1, 1), [0, 1, 2, 3, 8], [0, 1, 2, 3, 8]),
        (5, (1, 1), [0, 1, 2, 3, 8], [0, 1, 2, 3, 8]),
        (4, (1, 1), [0, 2, 3, 8], [0, 1, 2, 8]),
        (3, (1, 1), [0, 3, 8], [0, 1, 8]),
        (3, (2, 0), [0, 1, 8], [0, 1, 2]),
        (3, (0, 2), [2, 3, 8], [0, 3, 8]),
        (2, (1, 0), [0, 8], [0, 1]),
        (2, (1, 1), [3, 8], [0, 1]),  # no room for others
        (1, (1, 1), [8], [0]),
        (1, (1, 0), [8], [0]),
        (1, (2, 0), [8], [0]),
    ],
)
def test_special_tokens_stay_if_there_is_room_for_others(
    keep: int, around: tuple[int, int], left: list[int], right: list[int]
) -> None:
    given = [0, 1, 2, 3, 8]
    assert cut_tokens(given, keep, left=True, around=around) == left
    assert cut_tokens(given, keep, left=False, around=around) == right
    options: Any = {"truncation": True, "max_length": keep, "truncation_side": "left"}
    assert TokenizationOptions(**options).cut(given, around) == left
    assert TokenizationOptions(truncate_prompt_tokens=keep).cut(given, around) == left
    assert TokenizationOptions(truncation=True, max_length=keep).cut(given, around) == right


def test_a_call_has_defaults_of_its_own() -> None:
    """A chat's text has its special tokens already; who asks for more gets them."""
    assert ids(None, add_special_tokens=False) == [1, 2, 3, 4]
    assert ids({"add_special_tokens": True}, add_special_tokens=False) == [0, 1, 2, 3, 4]


def test_prompts_that_stay_as_they_are() -> None:
    prompts: list[Any] = ["ab", [1, 2], {"prompt": "ab", "cache_salt": "s"}, 5]
    marked: Any = Marked()
    for kwargs in (None, {}):
        assert tokenized(prompts, marked, kwargs) == prompts
    assert tokenized(prompts, None, {"truncation": True}) == prompts
    assert tokenized(prompts, marked, {"truncation": True}) == [
        {"prompt": "ab", "prompt_token_ids": [0, 1, 2]},
        [1, 2],
        {"prompt": "ab", "cache_salt": "s", "prompt_token_ids": [0, 1, 2]},
        5,
    ]


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ([1], "tokenization_kwargs must be a dict, got list"),
        ({"truncaton": True}, "did you mean truncation"),
        ({"truncation": "yes"}, "tokenization_kwargs: truncation must be"),
        ({"truncation_side": "middle"}, "tokenization_kwargs: truncation_side must be"),
        ({"max_length": 0}, "tokenization_kwargs: max_length must be at least 1"),
        ({"truncate_prompt_tokens": 0}, "tokenization_kwargs: truncate_prompt_tokens must be at"),
    ],
)
def test_options_that_are_none(kwargs: Any, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        ids(kwargs)
