"""Both APIs over the readers of a model's own marks, which the other tests replace."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.scripted_app import named_events, scripted_app

TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.reasoning_content }}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments }}{% endfor %}"
    "{% endfor %}{# <tool_call> </think> #}"
)
TEXT = """<think>
Hm.
</think>

<tool_call>
{"name": "add", "arguments": {"a": 1}}
</tool_call>"""
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
RESPONSES: dict[str, Any] = {
    "input": "x",
    "tools": [{"type": "function", "name": "add", "parameters": SCHEMA, "strict": True}],
}
MESSAGES: dict[str, Any] = {
    "model": "tiny",
    "max_tokens": 50,
    "messages": [{"role": "user", "content": "x"}],
    "tools": [{"name": "add", "input_schema": SCHEMA, "strict": True}],
}


@pytest.mark.parametrize("stream", [True, False])
def test_reasoning_and_calls_become_items_and_blocks(checkpoint: Path, stream: bool) -> None:
    client, llm = scripted_app(checkpoint)({"chat_template": TEMPLATE}, text=TEXT)
    answer = client.post("/v1/responses", json=RESPONSES | {"stream": stream})
    assert answer.status_code == 200, answer.text
    whole = named_events(answer.text)[-1]["response"] if stream else answer.json()
    thought, call = whole["output"]
    assert thought["content"][0]["text"].strip() == "Hm." and call["type"] == "function_call"
    assert call["name"] == "add" and call["arguments"].replace(" ", "") == '{"a":1}'
    assert llm.asked[0][1].structured_outputs is not None  # strict: a grammar makes the calls

    answer = client.post("/v1/messages", json=MESSAGES | {"stream": stream})
    if stream:
        starts = [one for one in named_events(answer.text) if one["type"] == "content_block_start"]
        assert [one["content_block"]["type"] for one in starts] == ["thinking", "tool_use"]
    else:
        thinking, use = answer.json()["content"]
        assert thinking["thinking"].strip() == "Hm." and use["input"] == {"a": 1}
        assert answer.json()["stop_reason"] == "tool_use"


def test_what_goes_back_reaches_the_template(checkpoint: Path) -> None:
    client, llm = scripted_app(checkpoint)({"chat_template": TEMPLATE}, text=TEXT)
    output = client.post("/v1/responses", json=RESPONSES).json()["output"]
    result = {"type": "function_call_output", "call_id": output[1]["call_id"], "output": "2"}
    items = [{"role": "user", "content": "x"}, *output, result]
    assert client.post("/v1/responses", json=RESPONSES | {"input": items}).status_code == 200
    first = llm.asked[-1][0]["prompt"]
    content = client.post("/v1/messages", json=MESSAGES).json()["content"]
    result = {"type": "tool_result", "tool_use_id": content[1]["id"], "content": "2"}
    messages = [
        *MESSAGES["messages"],
        {"role": "assistant", "content": content},
        {"role": "user", "content": [result]},
    ]
    assert client.post("/v1/messages", json=MESSAGES | {"messages": messages}).status_code == 200
    assert first == llm.asked[-1][0]["prompt"]
    assert "Hm." in first and "add" in first and "[tool]" in first


def test_required_tools_have_a_grammar(checkpoint: Path) -> None:
    client, llm = scripted_app(checkpoint)({"chat_template": TEMPLATE}, text=TEXT)
    named: list[tuple[str, dict[str, Any]]] = [
        ("/v1/responses", RESPONSES | {"tool_choice": "required"}),
        ("/v1/responses", RESPONSES | {"tool_choice": {"type": "function", "name": "add"}}),
        ("/v1/messages", MESSAGES | {"tool_choice": {"type": "any"}}),
        ("/v1/messages", MESSAGES | {"tool_choice": {"type": "tool", "name": "add"}}),
    ]
    for path, body in named:
        assert client.post(path, json=body).status_code == 200
        assert llm.asked[-1][1].structured_outputs is not None
    client.post("/v1/messages", json=MESSAGES | {"tool_choice": {"type": "none"}})
    assert llm.asked[-1][1].structured_outputs is None


def test_errors_call_a_schema_as_the_client_does(checkpoint: Path) -> None:
    client, _ = scripted_app(checkpoint)({"chat_template": TEMPLATE}, text=TEXT)
    bad = {"type": "function", "name": "f", "parameters": {"type": "array"}}
    unknown = bad | {"parameters": {"type": "object", "properties": {"a": {"type": "foo"}}}}
    space = {"type": "namespace", "name": "n", "tools": [RESPONSES["tools"][0], unknown]}
    required = {"tool_choice": "required"}
    for tools, where in (
        ([bad], "tools.0.parameters"),
        ([{"type": "web_search"}, bad], "tools.1.parameters"),
        ([space], "tools.0.tools.1.parameters"),
    ):
        answer = client.post("/v1/responses", json=RESPONSES | required | {"tools": tools})
        error = answer.json()["error"]
        assert error["param"] == where and error["message"].startswith(where), error
    tools = [MESSAGES["tools"][0], {"name": "g", "input_schema": {"type": "array"}}]
    answer = client.post("/v1/messages", json=MESSAGES | {"tools": tools})
    assert answer.json()["error"]["message"].startswith("tools.1.input_schema must be")
