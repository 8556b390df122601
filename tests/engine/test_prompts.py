"""What a prompt may be, and what each wrong one is told."""

from typing import Any

import numpy as np
import pytest

from jax_engine import InvalidRequestError, RequestTooLargeError
from jax_engine.engine.requests.prompts import (
    Prompt,
    TextLength,
    as_prompt_list,
    parse_prompt,
    prompt_text,
    truncate_prompt,
)
from jax_engine.tokenization.least_tokens import LeastTokens

SURROGATE = "a\ud800"


class Codes:
    """A tokenizer: the number of each letter, from a = 0."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [ord(one) - ord("a") for one in text]


TOKENIZER: Any = Codes()


def parsed(prompt: Any, tokenizer: Any = Codes()) -> Prompt:  # noqa: B008  # it has no state
    return parse_prompt(prompt, tokenizer, 3)


@pytest.mark.parametrize(
    ("given", "prompts"),
    [
        ("ab", ["ab"]),
        (b"ab", [b"ab"]),
        ({"prompt": "ab"}, [{"prompt": "ab"}]),
        ([1, 2], [[1, 2]]),
        (np.array([1, 2]), [[1, 2]]),
        (np.array([[1, 2]]), [[1, 2]]),
        (["ab", 1], ["ab", 1]),
        ([1, "ab"], [1, "ab"]),
        ([True], [True]),
        ((["a"], [1]), [["a"], [1]]),
        ([], []),
    ],
)
def test_one_prompt_or_many(given: Any, prompts: list) -> None:
    """Integers are one prompt, anything else many: what is wrong with one is said of that one."""
    assert as_prompt_list(given) == prompts


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("abc", Prompt("abc", [0, 1, 2])),
        ([0, 2], Prompt(None, [0, 2])),
        (np.array([0, 2]), Prompt(None, [0, 2])),
        ({"prompt": "ab"}, Prompt("ab", [0, 1])),
        ({"prompt_token_ids": (2,)}, Prompt(None, [2])),
        ({"prompt_token_ids": np.array([2])}, Prompt(None, [2])),
        ([np.int64(0), np.int32(2), 1], Prompt(None, [0, 2, 1])),
        ({"prompt": "ab", "prompt_token_ids": [2], "cache_salt": "s"}, Prompt("ab", [2], "s")),
        ({"prompt": "a", "multi_modal_data": {}, "token_type_ids": None}, Prompt("a", [0])),
    ],
)
def test_prompts_as_users_give_them(given: Any, expected: Prompt) -> None:
    found = parsed(given)
    assert found == expected and all(type(one) is int for one in found.token_ids)


WRONG: list[tuple[Any, str]] = [
    (b"ab", "prompt must be a string, got bytes"),
    ({"prompt": 5}, "prompt must be a string, got int"),
    ({"prompt": 5, "prompt_token_ids": [1]}, "prompt must be a string, got int"),
    ("", "prompt must have at least 1 token, got an empty prompt"),
    ([], "prompt must have at least 1 token"),
    (SURROGATE, "prompt must be valid Unicode, got a lone surrogate at character 1"),
    ({"prompt": "a", "cache_salt": SURROGATE}, "cache_salt must be valid Unicode"),
    ({"prompt": "a", "cache_salt": 1}, "cache_salt must be a string, got 1"),
    ({"cache_salt": "s"}, "must have 'prompt', 'prompt_token_ids' or.*got the keys"),
    ({"prompt": "a", "image": 1}, r"got the keys \['image', 'prompt'\]"),
    ({"prompt": "a", "image": None}, "got the keys"),
    ({"prompt": "a", "multi_modal_data": {"image": 1}}, "got the keys"),
    ({"prompt": "a", "prediction": SURROGATE}, "prediction must be valid Unicode"),
    ({"prompt": "a", "prediction": 1}, "prediction must be a list of integers, got 1"),
    ({"prompt": "a", "prediction": b"a"}, "prediction must be a string or a list of token ids"),
    ({"prompt": "a", "prediction": [0, "a"]}, "prediction must be a list of integers"),
    ({"prompt": "a", "prediction": [0, 3]}, r"prediction\[1\] must be in \[0, 2\], got 3"),
    ({"prediction": "a"}, "must have 'prompt', 'prompt_token_ids' or.*got the keys"),
    (5, "prompt_token_ids must be a list of integers, got 5"),
    ({0, 1}, "must be a list of integers"),
    ([0, 1.0], "must be a list of integers"),
    ([0, True], "must be a list of integers"),
    ([0, 3], r"prompt_token_ids\[1\] must be in \[0, 2\], got 3"),
    ([0, -1], r"prompt_token_ids\[1\] must be in \[0, 2\], got -1"),
]


@pytest.mark.parametrize(("given", "words"), WRONG)
def test_prompts_that_are_none(given: Any, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        parsed(given)


def test_text_needs_a_tokenizer() -> None:
    assert parsed({"prompt": "ab", "prompt_token_ids": [2]}, None).token_ids == [2]
    with pytest.raises(InvalidRequestError, match="no tokenizer"):
        parsed("ab", None)


@pytest.mark.parametrize("prediction", ["abcab", [0, 1, 2, 0, 1], np.array([0, 1, 2, 0, 1])])
def test_a_prediction_counts_as_far_as_it_is_read(prediction: Any) -> None:
    given = {"prompt": "c", "prediction": prediction}
    assert parsed(given) == parsed("c"), "nobody reads it"
    for most, kept in ((9, [0, 1, 2, 0, 1]), (3, [0, 1, 2]), (1, [0])):
        found = parse_prompt(given, TOKENIZER, 3, most)
        assert found == Prompt("c", [2], None, kept)
        assert all(type(one) is int for one in found.prediction)
    for nothing in ("", [], None):
        assert parse_prompt({"prompt": "c", "prediction": nothing}, TOKENIZER, 3, 9) == parsed("c")


def test_a_prediction_that_is_text_needs_a_tokenizer() -> None:
    prompt = {"prompt_token_ids": [1]}
    assert parse_prompt(prompt | {"prediction": [2]}, None, 3, 9).prediction == [2]
    with pytest.raises(InvalidRequestError, match=r"prediction is text, but .* no tokenizer"):
        parse_prompt(prompt | {"prediction": "a"}, None, 3, 9)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("ab", "ab"),
        ({"prompt": "ab", "cache_salt": "s"}, "ab"),
        ({"prompt": "ab", "prompt_token_ids": [1]}, None),
        ({"prompt": 5}, None),
        ([1], None),
        (b"ab", None),
    ],
)
def test_what_is_to_be_tokenized(given: Any, text: str | None) -> None:
    assert prompt_text(given) == text


def test_text_that_cannot_be_tokenized() -> None:
    with pytest.raises(InvalidRequestError, match="lone surrogate"):
        prompt_text(SURROGATE)


@pytest.mark.parametrize(
    ("keep", "kept"),
    [(None, 6), (9, 6), (6, 6), (5, 5), (2, 2), (1, 1), (-1, 3)],  # -1: what fits before a token
)
def test_the_end_of_a_prompt(keep: int | None, kept: int) -> None:
    """Types and embeddings are cut with the tokens that they belong to."""
    ids, types = [1, 2, 3, 4, 5, 6], [0, 0, 1, 1, 2, 2]
    assert truncate_prompt(Prompt("x", ids, "s"), keep, 4) == Prompt("x", ids[-kept:], "s")
    found = truncate_prompt(Prompt("x", ids, token_type_ids=types), keep, 4)
    assert (found.token_ids, found.token_type_ids) == (ids[-kept:], types[-kept:])
    embeds = np.arange(12.0).reshape(6, 2)
    found = truncate_prompt(Prompt(None, [0] * 6, embeds=embeds), keep, 4)
    assert found.token_ids == [0] * kept and found.embeds is not None
    np.testing.assert_array_equal(found.embeds, embeds[-kept:])


def of_length(longest: int, shrink: int = 1) -> TextLength:
    """For 10 tokens, of so many characters each at most."""
    made = TextLength(TOKENIZER, 10)
    made._least = LeastTokens(longest, shrink=shrink)
    return made


def test_a_text_is_refused_where_even_the_longest_tokens_are_too_many() -> None:
    length = of_length(3)
    assert [length.of_text("x" * count) for count in (9, 10, 30, 31)] == [0, 4, 10, 11]
    assert [length.cannot_fit("x" * count) for count in (30, 31)] == [False, True]
    for room, most in ((1, 27), (0, 30), (4, 18)):
        length.check("x" * most, room)
        with pytest.raises(RequestTooLargeError, match=f"at least {11 - room} tokens.* 10 allows"):
            length.check("x" * (most + 1), room)
    length.check("x" * 27)
    with pytest.raises(RequestTooLargeError, match="9 and one of output"):
        length.check("x" * 28)
    of_length(0).check("x" * 1000)


def test_a_beginning_has_the_first_tokens_however_long_they_are() -> None:
    text = "".join(map(chr, range(100, 120)))
    for longest, shrink, count, kept in ((3, 1, 2, 6), (3, 2, 2, 12), (3, 3, 3, 20), (0, 1, 2, 20)):
        assert of_length(longest, shrink).beginning(text, count) == text[:kept]
    assert of_length(3).beginning(text, 20) == of_length(3).beginning(text, 99) == text
