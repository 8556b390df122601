"""`/v1/messages` over an engine that says what it is told to, read by Anthropic's client."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel, TypeAdapter

from jax_engine import EngineDeadError
from tests.support.marked_turn import marked_turns
from tests.support.scripted_app import Make, asked_prompt, named_events, scripted_app, served

anthropic = pytest.importorskip("anthropic")

PATH = "/v1/messages"
HI: dict[str, Any] = {
    "model": "tiny", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}],
}  # fmt: skip
TOOL: dict[str, Any] = {
    "name": "add",
    "description": "Adds.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
TURN = '~Hm.|Hi!@add:{"a":1}@add:{"a":2}'


@pytest.fixture
def make(checkpoint: Path) -> Iterator[Make]:
    with marked_turns():
        yield scripted_app(checkpoint)


def sdk(client: Any) -> Any:
    return anthropic.Anthropic(
        base_url="http://testserver", api_key="any", http_client=client, max_retries=0
    )


def streamed(make: Make, script: dict[str, Any], **body: Any) -> list[dict[str, Any]]:
    kind: TypeAdapter[Any] = TypeAdapter(anthropic.types.RawMessageStreamEvent)
    client, _ = make(**script)
    events = named_events(client.post(PATH, json=HI | {"stream": True} | body).text)
    for one in events:
        if one["type"] not in ("ping", "error"):
            kind.validate_python(one)  # strict, unlike the client
    return events


def summed(events: list[dict[str, Any]]) -> list[list[str]]:
    """For each block in order: its kind, and what its deltas add up to."""
    found: list[list[str]] = []
    open_ = False
    for one in events:
        match one["type"]:
            case "content_block_start":
                assert not open_ and one["index"] == len(found)
                open_ = True
                found.append([one["content_block"]["type"], ""])
            case "content_block_delta":
                assert open_ and one["index"] == len(found) - 1
                kind, text = (value for value in one["delta"].values())
                assert kind in ("text_delta", "thinking_delta", "input_json_delta")
                found[-1][1] += text
            case "content_block_stop":
                assert open_ and one["index"] == len(found) - 1
                open_ = False
    assert not open_
    return found


@pytest.mark.parametrize(
    ("text", "expected", "reason"),
    [
        ("Hello", [["text", "Hello"]], "end_turn"),
        ("~Hm.|Hello", [["thinking", "Hm."], ["text", "Hello"]], "end_turn"),
        (
            TURN,
            [["thinking", "Hm."], ["text", "Hi!"], ["tool_use", '{"a":1}'],
             ["tool_use", '{"a":2}']],
            "tool_use",
        ),
        ("~", [], "end_turn"),
    ],
)  # fmt: skip
def test_events_in_their_order(make: Make, text: str, expected: Any, reason: str) -> None:
    events = streamed(make, {"text": text}, tools=[TOOL])
    assert [one["type"] for one in events[:2]] == ["message_start", "ping"]
    assert [one["type"] for one in events[-2:]] == ["message_delta", "message_stop"]
    assert summed(events[2:-2]) == expected
    assert events[-2]["delta"] == {"stop_reason": reason, "stop_sequence": None}
    tokens = len("[user]hi[assistant]")
    assert events[0]["message"]["usage"]["input_tokens"] == tokens - 1
    assert events[-2]["usage"] == {
        "input_tokens": tokens - 1,
        "cache_read_input_tokens": 1,
        "cache_creation_input_tokens": 0,
        "output_tokens": len(text),
        "output_tokens_details": {"thinking_tokens": 3 if "Hm." in text else 0},
    }


def test_an_answer_is_what_its_events_add_up_to(make: Make) -> None:
    client, _ = make(text=TURN)
    answer = client.post(PATH, json=HI, headers={"X-Request-Id": "mine"}).json()
    anthropic.types.Message.model_validate(answer)
    assert answer["id"] == "msg_mine" and answer["model"] == "tiny"
    assert answer["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "text", "text": "Hi!"},
        {"type": "tool_use", "id": "call_0", "name": "add", "input": {"a": 1}},
        {"type": "tool_use", "id": "call_1", "name": "add", "input": {"a": 2}},
    ]
    with sdk(client).messages.stream(**HI, tools=[TOOL]) as stream:
        for _ in stream:
            pass
        final = stream.get_final_message()
    assert [one.to_dict() for one in final.content] == answer["content"]
    assert final.usage.to_dict() == answer["usage"] and final.stop_reason == "tool_use"


@pytest.mark.parametrize("stream", [True, False])
def test_how_a_message_ends(make: Make, stream: bool) -> None:
    endings = [
        ({"stop_reason": "END"}, ["stop_sequence", "END"]),
        ({"stop_reason": 7}, ["end_turn", None]),
        ({"reason": "length"}, ["max_tokens", None]),
    ]
    for script, expected in endings:
        client, llm = make(**script)
        answer = client.post(PATH, json=HI | {"stop_sequences": ["END"], "stream": stream})
        found = named_events(answer.text)[-2]["delta"] if stream else answer.json()
        assert [found["stop_reason"], found["stop_sequence"]] == expected
        assert llm.asked[0][1].stop == ["END"]


def test_a_message_that_took_too_long(make: Make) -> None:
    script = {"reason": "abort", "stop_reason": "timeout"}
    client, _ = make(**script)
    answer = client.post(PATH, json=HI)
    assert answer.status_code == 504 and answer.json()["error"]["type"] == "timeout_error"
    assert streamed(make, script)[-1]["error"]["type"] == "timeout_error"


CUT = {'{"a":': {}, '{"a": 1, "b': {"a": 1}, '{"a": [1, {"b": "é': {"a": [1, {}]}}


@pytest.mark.parametrize("text", CUT)
def test_a_call_that_is_cut_off_has_its_complete_arguments(make: Make, text: str) -> None:
    """Anthropic's client reads the same arguments from the stream."""
    client, _ = make(text=f"@add:{text}", reason="length")
    answer = client.post(PATH, json=HI).json()
    assert answer["content"][0]["input"] == CUT[text] and answer["stop_reason"] == "max_tokens"
    with sdk(client).messages.stream(**HI) as stream:
        assert stream.get_final_message().content[0].input == CUT[text]


def test_fields_reach_the_engine(make: Make) -> None:
    client, llm = make()
    body = HI | {
        "model": "other", "temperature": 0.5, "top_p": 0.9, "top_k": 5, "system": "Be brief.",
        "metadata": {"user_id": "u"}, "service_tier": "auto", "thinking": {"type": "disabled"},
        "context_management": {"edits": []}, "cache_control": {"type": "ephemeral"},
        "output_config": {"format": {"type": "json_schema", "schema": {"a": 1}}, "effort": "low"},
    }  # fmt: skip
    assert client.post(PATH, json=body).status_code == 200
    params = llm.asked[0][1]
    assert (params.temperature, params.top_p, params.top_k) == (0.5, 0.9, 5)
    assert params.max_tokens == 9 and params.structured_outputs.json == {"a": 1}
    assert asked_prompt(llm) == "[system]Be brief.[user]hi[assistant]"


def test_thinking_is_a_switch_of_the_template(make: Make) -> None:
    template = "{{ enable_thinking | default('as it likes') }}{{ reasoning_effort }}"
    client, llm = make({"chat_template": template}, text="~Hm.|Hi")
    asked: list[tuple[Any, str]] = [
        ({}, "as it likes"),
        ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "True"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}, "Truehigh"),
        ({"thinking": {"type": "disabled"}}, "False"),
    ]
    for fields, expected in asked:
        client.post(PATH, json=HI | fields)
        assert asked_prompt(llm) == expected
    hidden = {"thinking": {"type": "adaptive", "display": "omitted"}}
    answer = client.post(PATH, json=HI | hidden).json()
    assert [one.get("thinking") for one in answer["content"]] == ["", None]
    events = client.post(PATH, json=HI | hidden | {"stream": True}).text
    assert "thinking_delta" not in events


def test_blocks_become_messages(make: Make) -> None:
    template = "{% for m in messages %}<{{ m.role }}>{{ m }}{% endfor %}"
    client, llm = make({"chat_template": template})
    cached = {"cache_control": {"type": "ephemeral"}}
    messages: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "1+1?"} | cached]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "x"},
            {"type": "text", "text": "Wait."},
            {"type": "tool_use", "id": "c", "name": "add", "input": {"a": "é"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True},
            {"type": "text", "text": "Well?"},
        ]},
        {"role": "user", "content": "Please."},
    ]  # fmt: skip
    body = HI | {"messages": messages, "system": [{"type": "text", "text": "Be kind."} | cached]}
    answer = client.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    roles = [one.split(">")[0] for one in asked_prompt(llm).split("<")[1:]]
    assert roles == ["system", "user", "assistant", "tool", "user"]
    for part in ("Be kind.", "Hm.", "Wait.", "'name': 'add'", "'a': 'é'", "Error: no", "Please."):
        assert part in asked_prompt(llm)


def test_a_beginning_of_the_answer_is_gone_on_with(make: Make) -> None:
    client, llm = make(text=" Rome.")
    messages = [*HI["messages"], {"role": "assistant", "content": "It is"}]
    answer = client.post(PATH, json=HI | {"messages": messages}).json()
    assert asked_prompt(llm) == "[user]hi[assistant]It is"
    assert answer["content"] == [{"type": "text", "text": " Rome."}]


def test_tokens_are_counted(make: Make) -> None:
    client, llm = make()
    body = {"model": "tiny", "messages": HI["messages"], "system": "S."}
    found = sdk(client).messages.count_tokens(**body)
    assert found.input_tokens == len("[system]S.[user]hi[assistant]") and not llm.asked
    wrong = client.post(f"{PATH}/count_tokens", json=body | {"model": "none"})
    assert wrong.status_code == 404 and wrong.json()["error"]["type"] == "not_found_error"


RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "x"}
USE = {"type": "tool_use", "id": "c", "name": "add", "input": {}}


def said(*blocks: Any, role: str = "user") -> dict[str, Any]:
    return HI | {"messages": [{"role": role, "content": list(blocks)}]}


REFUSED: list[tuple[Any, str]] = [
    ({"model": "tiny", "messages": HI["messages"]}, "max_tokens is missing"),
    ({"max_tokens": 5, "messages": HI["messages"]}, "model is missing"),
    (HI | {"max_tokens": None}, "max_tokens is missing"),
    (HI | {"max_tokens": 0}, "max_tokens must be at least 1"),
    (HI | {"messages": []}, "at least 1 message"),
    (HI | {"messages": "hi"}, "messages"),
    (HI | {"messages": [{"role": "wizard", "content": "x"}]}, "messages.0.role"),
    (HI | {"messages": [{"role": "user"}]}, "messages.0.content is missing"),
    (HI | {"max_token": 5}, "did you mean max_tokens?"),
    (HI | {"seed": 5}, "not a field"),
    (HI | {"container": "c"}, "not a field"),
    (said({"type": "image", "source": {}}), "messages.0.content.0.type must be one of text"),
    (said({"text": "x"}), "messages.0.content.0.type"),
    (said({"type": "text"}), "messages.0.content.0.text is missing"),
    (said({"type": "text", "text": "x", "txt": 1}), "txt is not a field"),
    (said(USE), "messages.0.content.0.type"),
    (said(RESULT), "no call before it"),
    (said({"type": "redacted_thinking", "data": "x"}, role="assistant"), "'redacted_thinking'"),
    (said(USE, role="assistant"), "must end with the tool_result"),
    (HI | {"system": [{"type": "image"}]}, "system.0.type"),
    (HI | {"tools": [{"type": "web_search_20250305", "name": "w"}]}, "'web_search_20250305'"),
    (HI | {"tools": [{"name": "add"}]}, "tools.0.input_schema is missing"),
    (HI | {"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice.name"),
    (HI | {"tool_choice": {"type": "required"}}, "tool_choice.type"),
    (HI | {"thinking": {"type": "enabled", "budget_tokens": 9}}, "below max_tokens"),
    (HI | {"temperature": -1}, "temperature must be in"),
    (HI | {"stop_sequences": "x"}, "stop_sequences"),
]


@pytest.mark.parametrize(("body", "why"), REFUSED)
def test_what_is_wrong_is_named(make: Make, body: Any, why: str) -> None:
    client, llm = make()
    answer = client.post(PATH, json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json().keys() == {"type", "error"} and answer.json()["type"] == "error"
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error" and why in error["message"], error
    assert not llm.asked and len(answer.text) < 1500


def test_other_errors_have_the_same_shape(make: Make) -> None:
    client, llm = make({"api_keys": ("one",), "max_body_bytes": 500, "max_waiting": 3})
    key = {"x-api-key": "one"}

    def kind(status: int, method: str, path: str, **options: Any) -> str:
        answer = client.request(method, path, **({"headers": key} | options))
        assert answer.status_code == status and answer.json()["type"] == "error", answer.text
        found: str = answer.json()["error"]["type"]
        return found

    for wrong in ({}, {"x-api-key": "on"}, {"x-api-key": ""}):
        assert kind(401, "POST", PATH, json=HI, headers=wrong) == "authentication_error"
    assert kind(404, "POST", PATH, json=HI | {"model": "x"}) == "not_found_error"
    assert kind(404, "GET", f"{PATH}/batches") == "not_found_error"
    assert kind(405, "GET", PATH) == "invalid_request_error"
    assert kind(413, "POST", PATH, json=HI | {"system": "x" * 600}) == "request_too_large"
    assert kind(400, "POST", PATH, content=b"{") == "invalid_request_error"
    llm.num_unfinished_requests = 5
    assert kind(503, "POST", PATH, json=HI) == "overloaded_error"
    llm.num_unfinished_requests = 0
    assert client.post(PATH, json=HI, headers={"Authorization": "Bearer one"}).status_code == 200
    assert client.get("/v1/models").json()["error"].keys() >= {"param", "code"}


def test_a_step_that_fails_is_said(make: Make) -> None:
    dead = EngineDeadError("the engine's process (pid 5) ended")
    *_, last = streamed(make, {"error": dead})
    assert last["type"] == "error" and last["error"]["type"] == "api_error"
    client, llm = make(error=dead)
    with (
        pytest.raises(anthropic.APIStatusError, match="the engine has ended"),
        sdk(client).messages.stream(**HI) as stream,
    ):
        for _ in stream:
            pass
    assert llm.open == 0


class Sum(BaseModel):
    total: int


def test_the_client_reads_answers_and_streams(make: Make) -> None:
    client, _ = make(text='{"total": 3}')
    api = sdk(client)
    assert api.messages.create(**HI).content[0].text == '{"total": 3}'
    assert api.messages.parse(**HI, output_format=Sum).parsed_output == Sum(total=3)
    with api.messages.stream(**HI) as stream:
        assert "".join(stream.text_stream) == '{"total": 3}'
    raw = api.messages.create(**HI, stream=True)
    assert next(one.type for one in raw) == "message_start"
    with pytest.raises(anthropic.NotFoundError, match="does not exist"):
        api.messages.create(**HI | {"model": "none"})
    with pytest.raises(anthropic.BadRequestError, match="at least 1"):
        api.messages.create(**HI | {"max_tokens": 0})


def test_the_asynchronous_client(make: Make) -> None:
    client, _ = make(text="~Hm.|Hello")

    async def ask() -> tuple[str, str]:
        http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=client.app))
        async with anthropic.AsyncAnthropic(
            base_url="http://t", api_key="any", http_client=http
        ) as api:
            answer = await api.messages.create(**HI)
            async with api.messages.stream(**HI) as stream:
                return answer.content[1].text, "".join([one async for one in stream.text_stream])

    assert asyncio.run(ask()) == ("Hello", "Hello")


def test_a_loop_with_a_tool(make: Make) -> None:
    """The content goes back as it is, and results behind it, as in Anthropic's guide."""
    client, llm = make(text=TURN)
    api, asked = sdk(client), HI | {"tools": [TOOL], "tool_choice": {"type": "auto"}}
    messages = [{"role": "user", "content": "1+1?"}]
    first = api.messages.create(**asked | {"messages": messages})
    results = [
        {"type": "tool_result", "tool_use_id": one.id, "content": str(one.input["a"] + 1)}
        for one in first.content
        if one.type == "tool_use"
    ]
    messages += [first.to_param(), {"role": "user", "content": results}]
    llm.text = "3"
    last = api.messages.create(**asked | {"messages": messages})
    assert last.content[0].text == "3" and last.stop_reason == "end_turn"
    assert asked_prompt(llm) == "[user]1+1?[assistant]Hi![tool]2[tool]3[assistant]"


def test_the_example_runs(make: Make) -> None:
    from examples import anthropic_client

    client, llm = make(text="Rome.")
    with served(client.app) as url:
        assert anthropic_client.ask(url, "tiny") == "Rome."
    assert asked_prompt(llm).startswith("[system]Be brief.[user]What")
