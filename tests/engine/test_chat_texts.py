"""Whose template writes a conversation, and who is named where one cannot be written."""

from typing import Any

import pytest

from jax_engine import InvalidRequestError, LoRARequest
from jax_engine.engine.requests.prompts import chat_texts
from jax_engine.tokenization.chat_template import RefusedByTemplateError

TALK = [{"role": "user", "content": "a"}]
ADAPTER = LoRARequest("polite", 1, "somewhere")


class Writes:
    """A tokenizer that writes the template's name, or raises what it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def apply_chat_template(self, messages: Any, *, chat_template: str | None, **_: Any) -> str:
        if self.error is not None and messages is not TALK:
            raise self.error
        return f"{chat_template}:{messages[0]['content']}"


def texts(messages: Any, tokenizer: Any = None, **given: Any) -> list[str]:
    return chat_texts(tokenizer or Writes(), messages, own={"default": "its own"}, **given)


def test_an_adapter_s_template_writes_its_conversations() -> None:
    assert texts(TALK) == ["None:a"]
    assert texts([TALK, TALK], lora_request=[ADAPTER, None]) == ["its own:a", "None:a"]
    assert texts(TALK, lora_request=ADAPTER, chat_template="given") == ["given:a"]
    assert texts((TALK, TALK)) == ["None:a", "None:a"], "any sequence of conversations"


@pytest.mark.parametrize("error", [RefusedByTemplateError, InvalidRequestError])
@pytest.mark.parametrize("adapter", [ADAPTER, None])
@pytest.mark.parametrize("several", [False, True])
def test_who_refuses(error: type[Exception], adapter: LoRARequest | None, several: bool) -> None:
    """The adapter is named for what its template refuses, not for what is wrong anyway."""
    wrong = [{"role": "user", "content": "b"}]
    messages = [TALK, wrong] if several else wrong
    with pytest.raises(InvalidRequestError) as found:
        texts(messages, Writes(error("no")), lora_request=adapter)
    named = "lora_request 'polite': " if adapter and error is RefusedByTemplateError else ""
    assert str(found.value) == ("conversation 1: " if several else "") + named + "no"


@pytest.mark.parametrize("messages", ["text", b"bytes", {"role": "user", "content": "a"}, 5, None])
def test_messages_that_are_no_list(messages: Any) -> None:
    with pytest.raises(InvalidRequestError, match="messages must be a list of dicts"):
        texts(messages)
