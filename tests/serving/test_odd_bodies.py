"""Conversations with something odd at a random place: answered or refused, never a 500."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.scripted_app import Make

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}', "id": "i"}
RESPONSES: dict[str, Any] = {
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "y"}]},
        CALL,
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "text", "text": "z"}]},
    ],
    "tools": [TOOL, {"type": "namespace", "name": "n", "tools": [TOOL]}, {"type": "web_search"}],
    "tool_choice": {"type": "allowed_tools", "mode": "auto",
                    "tools": [{"type": "function", "name": "f"}]},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
    "reasoning": {"effort": "low"},
    "include": ["message.output_text.logprobs"],
    "top_logprobs": 1,
    "metadata": {"a": "b"},
    "stream": True,
}  # fmt: skip
MESSAGES: dict[str, Any] = {
    "model": "tiny",
    "max_tokens": 9,
    "system": [{"type": "text", "text": "s"}],
    "messages": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "h", "signature": ""},
            {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "z"}]},
        ]},
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "enabled", "budget_tokens": 5},
    "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
    "stop_sequences": ["a"],
}  # fmt: skip
ODD: list[Any] = [
    None, True, -1, 0, 2**70, 1e308, "", "\ud800", "x" * 3000, [], [[]], {}, {"a": {}}, [None],
    [1, "a"], float("nan"), {"type": 5}, {"type": "text"}, {"role": "user"}, "function", [[[]]],
]  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """All containers and keys in a body."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(pairs):
        yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/responses", RESPONSES), ("/v1/messages", MESSAGES)]
)
@pytest.mark.slow
def test_odd_bodies(make: Make, path: str, body: dict[str, Any]) -> None:
    client, llm = make(text="Hello")
    assert client.post(path, json=body).status_code == 200
    rng, statuses = random.Random(0), set()
    for _ in range(300):
        mine = json.loads(json.dumps(body))
        container, key = rng.choice(list(places(mine)))
        container[key] = rng.choice(ODD)
        if rng.random() < 0.2 and isinstance(container, dict):
            container[str(rng.choice(ODD))] = rng.choice(ODD)
        content = json.dumps(mine).encode()
        answer = client.post(path, content=content, headers={"Content-Type": "application/json"})
        statuses.add(answer.status_code)
        assert answer.status_code in (200, 400, 404), (mine, answer.text)
        assert len(answer.text) < 1500 or answer.status_code == 200
    assert {200, 400} <= statuses and llm.open == 0
