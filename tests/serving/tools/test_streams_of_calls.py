"""What is streamed adds up to the answer at once, in the three APIs with tools, at any cut."""

import json
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from jax_engine import RequestOutputKind
from jax_engine.serving.api.content_blocks import Blocks
from jax_engine.serving.parsers.tool_formats import TOOL_FORMATS
from tests.serving.tools.test_readers import texts, turn
from tests.support.scripted_app import named_events, scripted_app
from tests.support.scripted_llm import ScriptedLLM

Parts = list[tuple[str, ...]]
CALL = '{"name": "f", "arguments": {"a": 1}}'


@pytest.mark.parametrize("name", TOOL_FORMATS)
@given(text=texts, cuts=st.lists(st.integers(0, 60), max_size=6).map(sorted))
@example(text=f"a<tool_call>{CALL}</tool_call>b<tool_call>{CALL}</tool_call>c", cuts=[])
def test_blocks_do_not_depend_on_cuts(name: str, text: str, cuts: list[int]) -> None:
    """Text between two calls stays there."""

    def blocks(pieces: list[str]) -> Parts:
        one, found = turn(name), Blocks()
        for piece in pieces:
            list(found.take(one.take(piece, ended=False)))
        list(found.take(one.take("", ended=True)))
        list(found.finish())
        return [(block.kind, block.name, block.text) for block in found.all]

    ends = [*(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    assert blocks([text]) == blocks(pieces) == blocks(list(text))


FUNCTION: dict[str, Any] = {"name": "f", "parameters": {"type": "object"}}
MESSAGE = {"role": "user", "content": "x"}
CHAT = {"messages": [MESSAGE], "tools": [{"type": "function", "function": FUNCTION}]}
RESPONSE = {"input": "x", "tools": [{"type": "function"} | FUNCTION]}
TOOLS = [{"name": "f", "input_schema": FUNCTION["parameters"]}]
MESSAGES = {"model": "tiny", "max_tokens": 9, "messages": [MESSAGE], "tools": TOOLS}


@cache
def client(checkpoint: Path, form: str) -> tuple[TestClient, ScriptedLLM]:
    return scripted_app(checkpoint)({"tool_call_parser": form})


def of_chat(http: TestClient, *, stream: bool) -> Parts:
    answer = http.post("/v1/chat/completions", json=CHAT | {"stream": stream}).text
    if not stream:
        message = json.loads(answer)["choices"][0]["message"]
        calls = [one["function"] for one in message.get("tool_calls", ())]
        return [(message["content"] or "",), *((c["name"], c["arguments"]) for c in calls)]
    lines = [one.removeprefix("data: ") for one in answer.strip().split("\n\n")][:-1]
    deltas = [choice["delta"] for one in lines for choice in json.loads(one)["choices"]]
    content = "".join(one.get("content") or "" for one in deltas)
    calls: list[list[str]] = []
    for one in (call for delta in deltas for call in delta.get("tool_calls") or ()):
        if one.get("id"):
            calls.append([one["function"]["name"], ""])
        calls[one["index"]][1] += one["function"]["arguments"]
    # Beside calls the whole answer says nothing that is blank.
    return [(content if content.strip() or not calls else "",), *((a, b) for a, b in calls)]


def of_responses(http: TestClient, *, stream: bool) -> Parts:
    answer = http.post("/v1/responses", json=RESPONSE | {"stream": stream})
    whole = named_events(answer.text)[-1]["response"] if stream else answer.json()
    return [
        (one["name"], one["arguments"]) if "name" in one else (one["content"][0]["text"],)
        for one in whole["output"]
    ]


def of_messages(http: TestClient, *, stream: bool) -> Parts:
    answer = http.post("/v1/messages", json=MESSAGES | {"stream": stream})
    if not stream:
        blocks = answer.json()["content"]
        return [
            (one["name"], json.dumps(one["input"])) if "name" in one else (one["text"],)
            for one in blocks
        ]
    found: list[list[str]] = []
    for event in named_events(answer.text):
        if event["type"] == "content_block_start":
            name = event["content_block"].get("name")
            found.append([""] if name is None else [name, ""])
        elif event["type"] == "content_block_delta":
            found[-1][-1] += event["delta"].get("text") or event["delta"]["partial_json"]
    return [(a[0], json.dumps(json.loads(a[1]))) if len(a) > 1 else (a[0],) for a in found]


@pytest.mark.parametrize("form", TOOL_FORMATS)
@given(text=texts, cuts=st.lists(st.integers(1, 60), max_size=6).map(sorted))
@example(text='{"name": "f", "arguments": {"a": "\\ud800"}}', cuts=[])
@example(text=f"a<tool_call>{CALL}</tool_call>b<tool_call>{CALL}</tool_call>c", cuts=[])
def test_streams_add_up_to_the_answer(
    checkpoint: Path, form: str, text: str, cuts: list[int]
) -> None:
    """The pieces are of any size, and one of them may hold several calls and texts."""
    text = text.encode("utf-8", "replace").decode().replace("<think>", "").replace("<|end|>", "")
    if not text:
        return
    http, llm = client(checkpoint, form)
    ends = [*(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    llm.generate = lambda *asked, **more: _pieces(llm, pieces, *asked[:2])  # type: ignore
    for read in (of_chat, of_responses, of_messages):
        assert read(http, stream=True) == read(http, stream=False)


async def _pieces(
    llm: ScriptedLLM, pieces: list[str], prompt: Any, params: Any
) -> AsyncIterator[SimpleNamespace]:
    whole = params.output_kind is RequestOutputKind.FINAL_ONLY
    for piece in () if whole else pieces[:-1]:
        yield llm._output(prompt, params, piece, None)  # type: ignore[misc]
    yield llm._output(prompt, params, "".join(pieces) if whole else pieces[-1], "stop")  # type: ignore[misc]
