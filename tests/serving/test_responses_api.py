"""`/v1/responses` over an engine that says what it is told to, read by OpenAI's client."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from examples import responses_client
from jax_engine import EngineDeadError
from tests.support.marked_turn import marked_turns
from tests.support.scripted_app import Make, asked_prompt, named_events, scripted_app, served

PATH = "/v1/responses"
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
TOOL = {
    "type": "function",
    "name": "add",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "strict": False,
}
TURN = '~Hm.|Hi!@add:{"a":1}@add:{"a":2}'


@pytest.fixture
def make(checkpoint: Path) -> Iterator[Make]:
    with marked_turns():
        yield scripted_app(checkpoint)


def sdk(client: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url="http://testserver/v1", api_key="any", http_client=client)


def streamed(make: Make, script: dict[str, Any], **body: Any) -> list[dict[str, Any]]:
    client, _ = make(**script)
    events = named_events(client.post(PATH, json={"input": "hi", "stream": True} | body).text)
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    for one in events:
        EVENT.validate_python(one)  # strict, unlike the client
    return events


def kinds(events: list[dict[str, Any]]) -> list[str]:
    """The types, repeated deltas once."""
    found = [one["type"].removeprefix("response.") for one in events]
    return [one for i, one in enumerate(found) if i == 0 or found[i - 1] != one]


ITEM = ["output_item.added", "content_part.added"]
DONE = ["content_part.done", "output_item.done"]
REASONING = [*ITEM, "reasoning_text.delta", "reasoning_text.done", *DONE]
MESSAGE = [*ITEM, "output_text.delta", "output_text.done", *DONE]
CALL = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
        "output_item.done"]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello", MESSAGE),
        ("~Hm.|Hello", REASONING + MESSAGE),
        ('@add:{"a":1}', CALL),
        (TURN, REASONING + MESSAGE + CALL + CALL),
        ("@add:{}|So.~Hm.", CALL + MESSAGE + REASONING),
        ("~", [*ITEM, "output_text.done", *DONE]),
    ],
)
def test_events_in_their_order(make: Make, text: str, expected: list[str]) -> None:
    events = streamed(make, {"text": text}, tools=[TOOL])
    assert kinds(events) == ["created", "in_progress", *expected, "completed"]
    assert events[0]["response"]["status"] == events[1]["response"]["status"] == "in_progress"
    done = [one["item"] for one in events if one["type"] == "response.output_item.done"]
    assert events[-1]["response"]["output"] == done
    added = [one["item"]["id"] for one in events if one["type"] == "response.output_item.added"]
    assert [one["id"] for one in done] == added
    assert all(one["status"] == "completed" for one in done)


def test_an_answer_is_what_its_events_add_up_to(make: Make) -> None:
    whole = streamed(make, {"text": TURN})[-1]["response"]
    client, _ = make(text=TURN)
    answer = client.post(PATH, json={"input": "hi"}).json()
    Response.model_validate(answer)

    def bare(one: Any) -> Any:
        if isinstance(one, dict):
            return {k: bare(v) for k, v in one.items() if k not in ("id", "created_at")}
        return [bare(x) for x in one] if isinstance(one, list) else one

    assert bare(answer) | {"completed_at": 0} == bare(whole) | {"completed_at": 0}
    assert [one["type"] for one in answer["output"]] == [
        "reasoning", "message", "function_call", "function_call",
    ]  # fmt: skip
    assert [one["call_id"] for one in answer["output"][2:]] == ["call_0", "call_1"]
    assert answer["usage"] == {
        "input_tokens": len("[user]hi[assistant]"),
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
        "output_tokens": len(TURN),
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": len(TURN) + len("[user]hi[assistant]"),
    }


def test_fields_are_repeated_and_reach_the_engine(make: Make) -> None:
    client, llm = make({"tool_call_parser": "hermes"}, text="Hello")
    body = {
        "model": "other", "input": "hi", "instructions": "Be brief.", "temperature": 0.5,
        "top_p": 0.9, "max_output_tokens": 7, "metadata": {"a": "b"}, "user": "me", "tools": [TOOL],
        "tool_choice": "auto", "parallel_tool_calls": False, "prompt_cache_key": "k", "store": True,
        "truncation": "auto", "reasoning": {"effort": "low", "summary": "auto"}, "top_k": 5,
        "include": ["reasoning.encrypted_content"], "seed": 3, "safety_identifier": "s",
        "text": {"format": {"type": "text"}, "verbosity": "low"}, "service_tier": "auto",
        "max_tool_calls": 3, "background": False, "previous_response_id": None,
    }  # fmt: skip
    answer = client.post(PATH, json=body, headers={"X-Request-Id": "mine"}).json()
    same = (
        "instructions", "temperature", "top_p", "max_output_tokens", "metadata", "user", "tools",
        "tool_choice", "parallel_tool_calls", "prompt_cache_key", "truncation",
        "safety_identifier",
    )  # fmt: skip
    assert {name: answer[name] for name in same} == {name: body[name] for name in same}
    assert answer["id"] == "resp_mine" and answer["model"] == "tiny" and not answer["store"]
    assert answer["reasoning"]["effort"] == "low" and answer["error"] is None
    params = llm.asked[0][1]
    assert (params.temperature, params.top_p, params.max_tokens) == (0.5, 0.9, 7)
    kept = llm.max_model_len - 7  # "auto" leaves room for the output
    assert (params.top_k, params.seed, params.truncate_prompt_tokens) == (5, 3, kept)
    assert asked_prompt(llm) == "[system]Be brief.[user]hi[assistant]"
    client.post(PATH, json={"input": "hi"})
    assert llm.asked[1][1].max_tokens is None and llm.asked[1][1].structured_outputs is None


def test_items_become_messages(make: Make) -> None:
    items: list[Any] = [
        {"role": "developer", "content": [{"type": "input_text", "text": "Short."}]},
        {"role": "user", "content": "1+1?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None,
         "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
         "content": [{"type": "output_text", "text": "Wait.", "annotations": [], "logprobs": []}]},
        {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}", "id": "fc_1"},
        {"type": "function_call_output", "call_id": "c",
         "output": [{"type": "input_text", "text": "2"}]},
    ]  # fmt: skip
    template = "{% for m in messages %}<{{ m.role }}>{{ m }}{% endfor %}"
    client, llm = make({"chat_template": template})
    answer = client.post(PATH, json={"input": items, "instructions": "Be kind."})
    assert answer.status_code == 200, answer.text
    prompt = asked_prompt(llm)
    assert [one.split(">")[0] for one in prompt.split("<")[1:]] == [
        "system", "user", "assistant", "tool",
    ]  # fmt: skip
    assert "Be kind.\\nShort." in prompt or "'Be kind.'}, {'type'" in prompt, prompt
    for part in ("Hm.", "Wait.", "'tool_calls'", "'name': 'add'", "'tool_call_id': 'c'"):
        assert part in prompt


@pytest.mark.parametrize("kind", ["json_object", "json_schema"])
def test_an_answer_names_its_form(make: Make, kind: str) -> None:
    """`tests/serving/fields` has the grammars that they become."""
    form = {"type": kind} | ({"name": "x", "schema": {"a": 1}} if kind == "json_schema" else {})
    answer = make()[0].post(PATH, json={"input": "hi", "text": {"format": form}})
    assert answer.json()["text"]["format"]["type"] == kind


@pytest.mark.parametrize("stream", [True, False])
def test_log_probabilities_are_those_of_the_text(make: Make, stream: bool) -> None:
    client, _ = make(text="~Hm.|Yes")
    body = {"input": "hi", "include": ["message.output_text.logprobs"], "top_logprobs": 2}
    answer = client.post(PATH, json=body | {"stream": stream})
    events = named_events(answer.text) if stream else []
    whole = events[-1]["response"] if stream else answer.json()
    found = whole["output"][1]["content"][0]["logprobs"]
    assert [one["token"] for one in found][-3:] == list("Yes")
    assert all(one["logprob"] == -0.5 and len(one["top_logprobs"]) == 2 for one in found)
    assert "~" not in [one["token"] for one in found]
    deltas = [one for one in events if one["type"] == "response.output_text.delta"]
    assert [x for one in deltas for x in one["logprobs"]] == (found if stream else [])


def test_how_an_answer_ends(make: Make) -> None:
    for text, status in (("Hello", ["incomplete"]), ("~Hm|Hi", ["completed", "incomplete"])):
        events = streamed(make, {"text": text, "reason": "length"})
        whole = events[-1]["response"]
        assert events[-1]["type"] == "response.incomplete" and whole["status"] == "incomplete"
        assert whole["incomplete_details"] == {"reason": "max_output_tokens"}
        assert [one["status"] for one in whole["output"]] == status
        client, _ = make(text=text, reason="length")
        assert client.post(PATH, json={"input": "x"}).json()["status"] == "incomplete"
    for why, code in ((None, 500), ("timeout", 504)):
        client, _ = make(reason="abort", stop_reason=why)
        assert client.post(PATH, json={"input": "x"}).status_code == code
    *_, error, failed = streamed(make, {"reason": "abort", "stop_reason": "timeout"})
    assert error["code"] == "timeout" and failed["response"]["output"][0]["status"] == "incomplete"


def test_a_step_that_fails_is_said(make: Make) -> None:
    dead = EngineDeadError("the engine's process (pid 5) ended")
    *_, error, failed = streamed(make, {"text": "~Hm.|Hi", "error": dead})
    assert error["type"] == "error" and error["code"] == "engine_dead"
    assert failed["type"] == "response.failed" and failed["response"]["status"] == "failed"
    assert failed["response"]["error"]["code"] == "server_error"
    client, llm = make(error=dead)
    with sdk(client).responses.stream(model="tiny", input="hi") as stream:
        last = [one.type for one in stream][-2:]
    assert last == ["error", "response.failed"] and llm.open == 0


CALLED = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
REFUSED: list[tuple[Any, str, str]] = [
    ({"input": []}, "input", "at least 1"),
    ({}, "input", "missing"),
    ({"input": None}, "input", "missing"),
    ({"input": 5}, "input", "string"),
    ({"input": ["a"]}, "input", "got ['a']"),
    ({"input": [{"role": "user"}]}, "input.0.content", "missing"),
    ({"input": [{"role": "wizard", "content": "x"}]}, "input.0.role", "'user'"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
     "input.0.content.0.type", "input_text"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
     "input.0.content.0.text", "missing"),
    ({"input": [{"role": "user", "content": "x", "contents": 1}]},
     "input.0.contents", "did you mean content?"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0.type", "'item_reference'"),
    ({"input": [{"type": ["x"]}]}, "input.0.type", "function_call_output"),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
     "input.0.call_id", "no call"),
    ({"input": [CALLED, {"type": "function_call_output", "call_id": "d", "output": "x"}]},
     "input.1.call_id", "no call"),
    ({"input": [CALLED | {"arguments": {}}]}, "input.0.arguments", "string"),
    ({"input": [{"type": "reasoning", "encrypted_content": "gAAA"}]},
     "input.0.encrypted_content", "cannot be read"),
    ({"input": "x", "previous_response_id": "resp_1"}, "previous_response_id", "not supported"),
    ({"input": "x", "conversation": {"id": "c"}}, "conversation", "not supported"),
    ({"input": "x", "background": True}, "background", "not supported"),
    ({"input": "x", "prompt": {"id": "p"}}, "prompt", "not supported"),
    ({"input": "x", "max_output_token": 5}, "max_output_token", "max_output_tokens?"),
    ({"input": "x", "max_output_tokens": 0}, "max_output_tokens", "at least 1"),
    ({"input": "x", "temperature": -1}, "temperature", "must be in"),
    ({"input": "x", "n": 2}, "n", "not a field"),
    ({"input": "x", "include": ["all"]}, "include", "message.output_text.logprobs"),
    ({"input": "x", "top_logprobs": 2}, "top_logprobs", "include"),
    ({"input": "x", "tools": [{"type": "mcp"}]}, "tools.0.type", "'mcp'"),
    ({"input": "x", "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "shell"}]}]},
     "tools.0.tools.0.type", "'shell'"),
    ({"input": "x", "tools": [{"type": "local_shell"}]}, "tools.0.type", "'local_shell'"),
    ({"input": "x", "tools": [{"type": "function"}]}, "tools.0.name", "missing"),
    ({"input": "x", "tools": [{"type": "function", "function": {"name": "f"}}]},
     "tools.0.function", "not a field"),
    ({"input": "x", "tool_choice": {"type": "web_search"}}, "tool_choice.type", "'function'"),
    ({"input": "x", "tool_choice": {"type": "function", "name": "f"}}, "tool_choice.name", "'f'"),
    ({"input": "x", "tool_choice": "any"}, "tool_choice", "required"),
    ({"input": "x", "text": {"format": {"type": "json_schema"}}}, "text.format.schema", "missing"),
    ({"input": "x", "text": {"format": {"type": "xml"}}}, "text.format.type", "'text'"),
    ({"input": "x", "reasoning": {"effort": "huge"}}, "reasoning.effort", "'low'"),
    ({"input": "x", "metadata": {"a": 1}}, "metadata.a", "string"),
    ({"input": "refuse" * 5000, "stream": "yes"}, "stream", "boolean"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "param", "why"), REFUSED)
def test_what_is_wrong_is_named(make: Make, body: Any, param: str, why: str) -> None:
    client, llm = make()
    answer = client.post(PATH, json=body)
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["type"] == "invalid_request_error", error
    assert error["param"] == param and why in error["message"], error
    assert not llm.asked and len(answer.text) < 1500


def test_only_allowed_tools_are_shown(make: Make) -> None:
    template = "{% for t in tools or [] %}{{ t.function.name }},{% endfor %}"
    client, llm = make({"chat_template": template})
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "b"}]}
    tools = [TOOL | {"name": name} for name in "abc"]
    for extra, expected in (({}, "a,b,c,"), ({"tool_choice": choice}, "b,")):
        answer = client.post(PATH, json={"input": "x", "tools": tools} | extra)
        assert answer.status_code == 200, answer.text
        assert asked_prompt(llm) == expected


def test_functions_of_a_namespace_have_both_names(make: Make) -> None:
    """Codex offers them so. It also offers a web search, whoever serves."""
    template = "{% for t in tools or [] %}{{ t.function.name }},{% endfor %}"
    script = {"text": "@math__add:{}@add:{}"}
    client, llm = make({"chat_template": template}, **script)
    space = {"type": "namespace", "name": "math", "description": "d", "tools": [TOOL]}
    body = {"input": "x", "tools": [TOOL, space, {"type": "web_search"}]}
    answer = client.post(PATH, json=body).json()
    assert asked_prompt(llm) == "add,math__add,"
    calls = [(one.get("namespace"), one["name"]) for one in answer["output"]]
    assert calls == [("math", "add"), (None, "add")] and answer["tools"] == [TOOL, space]
    Response.model_validate(answer)
    template = "{% for m in messages %}{{ m.tool_calls }}{{ m.name }}{% endfor %}"
    client, llm = make({"chat_template": template})
    result = {"type": "function_call_output", "call_id": "call_0", "name": "add", "output": "2"}
    items = [*answer["output"], result]
    assert client.post(PATH, json={"input": items}).status_code == 200
    assert asked_prompt(llm).endswith("math__add") and "'name': 'math__add'" in asked_prompt(llm)


class Sum(BaseModel):
    total: int


@pytest.mark.slow
def test_the_client_reads_answers_and_streams(make: Make) -> None:
    client, _ = make(text='{"total": 3}')
    api = sdk(client)
    assert api.responses.create(model="tiny", input="?").output_text == '{"total": 3}'
    parsed = api.responses.parse(model="tiny", input="?", text_format=Sum)
    assert parsed.output_parsed == Sum(total=3)
    with api.responses.stream(model="tiny", input="?", text_format=Sum) as stream:
        text = "".join(one.delta for one in stream if one.type == "response.output_text.delta")
        assert text == '{"total": 3}'
        assert stream.get_final_response().output_parsed == Sum(total=3)
    with pytest.raises(openai.BadRequestError, match="nothing is stored"):
        api.responses.create(model="tiny", input="?", previous_response_id="resp_1")
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        api.responses.create(model="none", input="?")


def test_the_asynchronous_client(make: Make) -> None:
    client, _ = make(text="~Hm.|Hello")

    async def ask() -> tuple[str, list[str]]:
        transport = httpx2.ASGITransport(app=client.app)
        async with openai.AsyncOpenAI(
            base_url="http://t/v1",
            api_key="any",
            http_client=httpx2.AsyncClient(transport=transport),
        ) as api:
            answer = await api.responses.create(model="tiny", input="?")
            async with api.responses.stream(model="tiny", input="?") as stream:
                types = [one.type async for one in stream]
                final = await stream.get_final_response()
            assert final.output_text == answer.output_text
            return answer.output_text, types

    text, types = asyncio.run(ask())
    assert text == "Hello" and types[0] == "response.created" and types[-1] == "response.completed"


def test_a_loop_with_a_tool(make: Make) -> None:
    """The output goes back as it is, the tool's result behind it, as in OpenAI's guide."""
    client, llm = make(text=TURN)
    api = sdk(client)
    items: Any = [{"role": "user", "content": "1+1?"}]
    first = api.responses.create(model="tiny", input=items, tools=[TOOL])  # type: ignore[list-item]
    items += first.output
    for one in first.output:
        if one.type == "function_call":
            result = str(json.loads(one.arguments)["a"] + 1)
            items.append({"type": "function_call_output", "call_id": one.call_id, "output": result})
    llm.text = "3"
    last = api.responses.create(model="tiny", input=items, tools=[TOOL])  # type: ignore[list-item]
    assert last.output_text == "3"
    assert asked_prompt(llm) == "[user]1+1?[assistant]Hi![tool]2[tool]3[assistant]"


def test_the_example_runs(make: Make) -> None:
    client, llm = make(text='@weather:{"city":"Rome"}|Hot.')
    with served(client.app) as url:
        assert responses_client.ask(url) == "Hot."
    assert "[tool]It is sunny in Rome.[user]Sum up." in asked_prompt(llm)
