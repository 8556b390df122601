"""Conversations become prompts, with the options that `LLM.chat` takes; by a stub tokenizer."""

from collections.abc import Iterator
from typing import Any

import pytest

from jax_engine import InvalidRequestError
from jax_engine.engine.requests.prompts import ChatOptions, chat_prompts

TURN = {"role": "user", "content": "b"}


class Templated:
    """A chat is its contents; 0 is written before a text that says nothing of special tokens."""

    def apply_chat_template(self, conversation: Any, **options: Any) -> str:
        assert options["tokenize"] is False
        if any(one["content"] == "bad" for one in conversation):
            raise InvalidRequestError("a bad turn")
        return "".join(one["content"] for one in conversation) + options.get("end", "")

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [0] * add_special_tokens + [ord(one) - ord("a") for one in text]


def prompts(messages: Any, kwargs: Any = None, **options: Any) -> list[Any]:
    tokenizer: Any = Templated()
    return chat_prompts(tokenizer, messages, kwargs, **options)


def test_the_template_writes_the_special_tokens() -> None:
    assert prompts([TURN]) == [{"prompt": "b", "prompt_token_ids": [1]}]
    assert prompts([[TURN], [TURN, TURN]], {"add_special_tokens": True}) == [
        {"prompt": "b", "prompt_token_ids": [0, 1]},
        {"prompt": "bb", "prompt_token_ids": [0, 1, 1]},
    ]
    assert prompts([TURN], chat_template_kwargs={"end": "c"})[0]["prompt"] == "bc"
    assert prompts([]) == []


def turns() -> Iterator[Any]:
    yield TURN


@pytest.mark.parametrize("wrong", ["text", b"text", TURN, 5, {"role"}, turns()])
def test_messages_that_are_no_list(wrong: Any) -> None:
    with pytest.raises(InvalidRequestError, match="messages must be a list of dicts"):
        prompts(wrong)


def test_which_conversation_is_wrong() -> None:
    bad = {"role": "user", "content": "bad"}
    with pytest.raises(InvalidRequestError, match=r"^conversation 1: a bad turn"):
        prompts([[TURN], [bad]])
    with pytest.raises(InvalidRequestError, match=r"^a bad turn"):
        prompts([TURN, bad])


def test_options_that_are_none() -> None:
    with pytest.raises(InvalidRequestError, match="chat_template must be a string"):
        ChatOptions(chat_template=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="options of the template only, got tokenize,"):
        prompts([TURN], chat_template_kwargs={"tools": [], "tokenize": True, "end": "c"})
