"""Both APIs over the readers of a model's own marks, which the other tests replace."""

from typing import Any

import pytest

from tests.support.scripted_app import Make, named_events

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
def test_reasoning_and_calls_become_items_and_blocks(make: Make, stream: bool) -> None:
    client, llm = make({"chat_template": TEMPLATE}, text=TEXT)
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


def test_what_goes_back_reaches_the_template(make: Make) -> None:
    client, llm = make({"chat_template": TEMPLATE}, text=TEXT)
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


@pytest.mark.parametrize(
    ("called", "used"),
    [({}, {}), (None, None), ("", ""), (" ", " "), ("null", "null"), ("[]", "{}")],
)
def test_calls_come_back_without_arguments(make: Make, called: Any, used: Any) -> None:
    client, llm = make({"chat_template": TEMPLATE}, text=TEXT)
    call = {"type": "function_call", "call_id": "c", "name": "add", "arguments": called}
    if called == {}:
        del call["arguments"]
    result = {"type": "function_call_output", "call_id": "c", "output": "2"}
    answer = client.post("/v1/responses", json={"input": [call, result]})
    assert answer.status_code == 200, answer.text
    use = {"type": "tool_use", "id": "c", "name": "add", "input": used}
    if called == {}:
        del use["input"]
    found = {"type": "tool_result", "tool_use_id": "c", "content": "2"}
    messages = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [found]}]
    answer = client.post("/v1/messages", json=MESSAGES | {"messages": messages})
    assert answer.status_code == 200, answer.text
    assert [one[0]["prompt"] for one in llm.asked] == ["[assistant]add{}[tool]2"] * 2


def test_required_tools_have_a_grammar(make: Make) -> None:
    client, llm = make({"chat_template": TEMPLATE}, text=TEXT)
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


UNIQUE = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}


@pytest.mark.parametrize("parser", ["none", "pythonic"])
@pytest.mark.parametrize("schema", [SCHEMA, UNIQUE], ids=["plain", "unique"])
def test_strict_tools_are_taken_without_a_form(make: Make, parser: str, schema: Any) -> None:
    """Clients send them so by default; openai-agents also asks for one call at a time."""
    client, llm = make({"tool_call_parser": parser}, text="[add(a=1), add()]")
    function = {"name": "add", "parameters": schema, "strict": True}
    message = {"role": "user", "content": "x"}
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions",
         {"messages": [message], "tools": [{"type": "function", "function": function}],
          "parallel_tool_calls": False}),
        ("/v1/responses",
         {"input": "x", "tools": [{"type": "function"} | function], "parallel_tool_calls": False}),
        ("/v1/messages",
         MESSAGES | {"tools": [{"name": "add", "input_schema": schema, "strict": True}],
                     "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    ]  # fmt: skip
    for path, body in bodies:
        for stream in (False, True):
            answer = client.post(path, json=body | {"stream": stream})
            assert answer.status_code == 200, answer.text
            assert llm.asked[-1][1].structured_outputs is None
            whole = answer.text.replace(" ", "")
            name = whole.count('"name":"add"')
            assert (name > 0) == (parser == "pythonic" or path == "/v1/responses")


def test_a_keyword_that_no_grammar_holds_is_named(make: Make) -> None:
    client, _ = make({"chat_template": TEMPLATE}, text=TEXT)
    function = {"name": "add", "parameters": UNIQUE}
    tool = {"type": "function", "function": function}
    chat = {"messages": [{"role": "user", "content": "x"}], "tools": [tool]}
    use = {"tools": [{"name": "add", "input_schema": UNIQUE}]}
    for path, body, where in (
        ("/v1/chat/completions", chat | {"tool_choice": "required"},
         "tools[0].function.parameters"),
        ("/v1/chat/completions", chat | {"tool_choice": tool}, "tools[0].function.parameters"),
        ("/v1/responses", {"input": "x", "tools": [{"type": "function"} | function],
                           "tool_choice": "required"}, "tools.0.parameters"),
        ("/v1/messages", MESSAGES | use | {"tool_choice": {"type": "any"}},
         "tools.0.input_schema"),
    ):  # fmt: skip
        answer = client.post(path, json=body)
        error = answer.json()["error"]
        assert answer.status_code == 400 and error["message"].startswith(where)
        assert "'add'" in error["message"] and "uniqueItems" in error["message"]
        assert "tool_choice 'auto'" in error["message"]


def test_errors_call_a_schema_as_the_client_does(make: Make) -> None:
    client, _ = make({"chat_template": TEMPLATE}, text=TEXT)
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
