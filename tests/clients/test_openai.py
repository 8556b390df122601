"""OpenAI's own client, and a real model. What `tests/serving` asks with a tiny one is not here."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from weather import QUESTION, Weather, conforms

FRANCE: Any = [{"role": "user", "content": "What is the capital of France?"}]
ASKED: dict[str, Any] = {"model": "smollm2", "temperature": 0}
TOOL: Any = openai.pydantic_function_tool(Weather)
REQUIRED: dict[str, Any] = ASKED | {
    "messages": [{"role": "user", "content": QUESTION}], "tools": [TOOL], "tool_choice": "required",
    "parallel_tool_calls": False, "max_tokens": 80,
}  # fmt: skip
FLAT: Any = {"type": "function", "strict": True, **TOOL["function"]}


@pytest.fixture(scope="module")
def client(base_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=base_url, api_key="none", max_retries=0) as found:
        yield found


def test_a_chat_at_once_as_a_stream_and_of_many(client: openai.OpenAI, base_url: str) -> None:
    asked = ASKED | {"messages": FRANCE, "max_tokens": 12}
    answer = client.chat.completions.create(**asked)
    text = answer.choices[0].message.content or ""
    assert "Paris" in text and answer.usage is not None
    with client.chat.completions.stream(**asked) as stream:
        deltas = [one.delta for one in stream if one.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == final.choices[0].message.content == text and len(deltas) > 2

    async def many() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as one:
            return await asyncio.gather(*(one.chat.completions.create(**asked) for _ in range(4)))

    assert [one.choices[0].message.content for one in asyncio.run(many())] == [text] * 4


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "Weather"}}]
)
def test_a_tool_is_called_and_answered(client: openai.OpenAI, choice: Any) -> None:
    asked = REQUIRED | {"tool_choice": choice}
    message = client.chat.completions.parse(**asked).choices[0].message
    assert message.tool_calls is not None
    (call,) = message.tool_calls
    assert isinstance(call.function.parsed_arguments, Weather)
    told = {"role": "tool", "tool_call_id": call.id, "content": "It is sunny."}
    more = client.chat.completions.create(
        **ASKED, messages=[*asked["messages"], message, told], tools=[TOOL], tool_choice="none",
        max_tokens=8,
    )  # fmt: skip
    assert more.choices[0].message.content and not more.choices[0].message.tool_calls


def test_a_call_as_a_stream(client: openai.OpenAI) -> None:
    kinds, written = [], ""
    with client.chat.completions.stream(**REQUIRED) as stream:
        for one in stream:
            kinds.append(one.type)
            if one.type == "tool_calls.function.arguments.delta":
                written += one.arguments_delta
            if one.type == "tool_calls.function.arguments.done":
                assert one.name == "Weather" and isinstance(one.parsed_arguments, Weather)
        final = stream.get_final_completion().choices[0]
    assert "tool_calls.function.arguments.done" in kinds and conforms(json.loads(written))
    assert final.finish_reason == "tool_calls" and final.message.tool_calls is not None
    assert final.message.tool_calls[0].function.arguments == written


def test_a_response_at_once_and_as_a_stream(client: openai.OpenAI, base_url: str) -> None:
    asked: Any = ASKED | {"input": FRANCE, "max_output_tokens": 12}
    answer = client.responses.create(**asked)
    assert "Paris" in answer.output_text

    async def streamed() -> tuple[list[Any], Any]:
        async with (
            openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as one,
            one.responses.stream(**asked) as stream,
        ):
            return [event async for event in stream], await stream.get_final_response()

    events, final = asyncio.run(streamed())
    assert [one.sequence_number for one in events] == list(range(len(events)))
    deltas = [one.delta for one in events if one.type == "response.output_text.delta"]
    assert "".join(deltas) == final.output_text == answer.output_text and len(deltas) > 2


def test_a_call_in_a_response(client: openai.OpenAI) -> None:
    asked: Any = ASKED | {"input": QUESTION, "tools": [FLAT], "max_output_tokens": 80}
    asked |= {"tool_choice": "required", "parallel_tool_calls": False}
    (call,) = client.responses.parse(**asked).output
    assert call.type == "function_call" and conforms(json.loads(call.arguments))
    with client.responses.stream(**asked) as stream:
        events = list(stream)
    deltas = [one.delta for one in events if one.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == call.arguments


def test_answers_of_a_given_form(client: openai.OpenAI) -> None:
    chat = client.chat.completions.parse(
        **ASKED, messages=[{"role": "user", "content": QUESTION}], response_format=Weather,
        max_tokens=80,
    )  # fmt: skip
    assert isinstance(chat.choices[0].message.parsed, Weather)
    answer = client.responses.parse(**ASKED, input=QUESTION, text_format=Weather)
    assert isinstance(answer.output_parsed, Weather)
