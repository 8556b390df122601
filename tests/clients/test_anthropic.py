"""Anthropic's own client."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from weather import QUESTION, Weather, conforms

ASKED: dict[str, Any] = {
    "model": "smollm2", "system": "Be brief.", "max_tokens": 12, "extra_body": {"temperature": 0},
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
}  # fmt: skip
TOOL: Any = {
    "name": "weather", "description": "The weather of a city.",
    "input_schema": Weather.model_json_schema(),
}  # fmt: skip
ANY: dict[str, Any] = ASKED | {
    "messages": [{"role": "user", "content": QUESTION}], "tools": [TOOL], "max_tokens": 80,
    "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
}  # fmt: skip


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as found:
        yield found


def test_a_message_at_once_and_as_a_stream(client: anthropic.Anthropic) -> None:
    (block,) = (answer := client.messages.create(**ASKED)).content
    assert block.type == "text" and "Paris" in block.text
    with client.messages.stream(**ASKED) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert "".join(pieces) == block.text and len(pieces) > 2
    assert final.stop_reason == answer.stop_reason == "end_turn"
    assert final.usage.output_tokens == answer.usage.output_tokens <= 12


def test_any_tool_is_called_and_answered(client: anthropic.Anthropic) -> None:
    (call,) = (answer := client.messages.create(**ANY)).content
    assert answer.stop_reason == "tool_use"
    assert call.type == "tool_use" and call.name == "weather" and conforms(call.input)
    with client.messages.stream(**ANY) as stream:
        parts = [one.partial_json for one in stream if one.type == "input_json"]
    assert json.loads("".join(parts)) == call.input
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "It is sunny."}
    messages = [
        *ANY["messages"],
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [result]},
    ]
    more = client.messages.create(**(ASKED | {"messages": messages, "tools": [TOOL]}))
    assert [one.type for one in more.content] == ["text"]


def test_tokens_are_counted(client: anthropic.Anthropic) -> None:
    same = {name: ASKED[name] for name in ("model", "system", "messages")}
    counted = client.messages.count_tokens(**same).input_tokens
    usage = client.messages.create(**ASKED).usage
    assert counted == usage.input_tokens + (usage.cache_read_input_tokens or 0) > 10


def test_errors_have_their_types(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="not_found_error"):
        client.messages.create(**(ASKED | {"model": "none"}))
    with pytest.raises(anthropic.BadRequestError, match="invalid_request_error"):
        client.messages.create(**(ASKED | {"max_tokens": 0}))
    long = [{"role": "user", "content": "word " * 2000}]
    with pytest.raises(anthropic.BadRequestError, match="1024"):
        client.messages.create(**(ASKED | {"messages": long}))
