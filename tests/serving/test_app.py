"""The endpoints over an engine that says what it is told to: fields, errors, streams."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from jax_engine import EngineDeadError, RequestOutputKind, SamplingParams
from jax_engine.serving import stat_loggers
from jax_engine.serving.text_encoder import TextEncoder
from tests.support.patience import HANG_S
from tests.support.scripted_app import Make, events, http_scope, leave

ENDPOINTS = {
    "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages",
    "/v1/messages/count_tokens", "/v1/embeddings",
}  # fmt: skip
C, CHAT = "/v1/completions", "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "hi"}]}


def params_of(make: Make, path: str, body: dict[str, Any], **script: Any) -> SamplingParams:
    client, llm = make(**script)
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return llm.asked[0][1]


def test_defaults_are_the_server_s(make: Make) -> None:
    """They fill what is left out or null. `tests/serving/fields` has each field on its own."""
    body = {
        "prompt": "x", "model": "other", "top_k": 5, "temperature": None, "user": "me",
        "metadata": {"a": 1}, "store": False, "unknown": None,
    }  # fmt: skip
    found = params_of(make, C, body, defaults={"temperature": 0.5, "top_k": 9})
    kind = RequestOutputKind.FINAL_ONLY
    assert found == SamplingParams(temperature=0.5, top_k=5, max_tokens=16, output_kind=kind)


def test_how_many_tokens(make: Make) -> None:
    """`test_server_flags.py` has the defaults and limits of the model and of the server."""
    assert params_of(make, C, {"prompt": "x", "max_tokens": 0, "echo": True}).max_tokens == 1
    both = {"max_tokens": 3, "max_completion_tokens": 4}
    assert params_of(make, CHAT, HI | both).max_tokens == 4


def test_a_grammar_beside_a_format_of_text(make: Make) -> None:
    body = HI | {"response_format": {"type": "text"}, "guided_grammar": 'root ::= "x"'}
    found = params_of(make, CHAT, body).structured_outputs
    assert [name for name, value in vars(found).items() if value is not None] == ["grammar"]


# Each token has as many ways to have come about as there are alternatives.
AMBIGUOUS = "start: e\ne: " + " | ".join(f'e "{n}" e' for n in range(300))
REFUSED: list[tuple[str, dict[str, Any], str | None, str]] = [
    (C, {"prompt": "x", "temperatures": 1}, "temperatures", "did you mean temperature?"),
    (C, {"prompt": "x", "stream_options": {"usage": True}, "stream": True},
     "stream_options.usage", "usage is not a field"),
    (C, {"prompt": "x", "structured_outputs": {"grammar": AMBIGUOUS}},
     "structured_outputs", "grammar size"),
    (C, {"prompt": "x", "guided_grammar": "root ::= x"}, "guided_grammar", "not found"),
    (C, {}, "prompt", "prompt is missing"),
    (C, {"prompt": []}, "prompt", "must be a string"),
    (C, {"prompt": ["a", 1]}, "prompt", "must be a string"),
    (C, {"prompt": [True]}, "prompt", "must be a string"),
    (C, {"prompt": ["a"] * 3000}, "prompt", "at most 2048"),
    (C, {"prompt": "x", "n": "2"}, "n", "integer"),
    (C, {"prompt": "x", "n": True}, "n", "integer"),
    (C, {"prompt": "x", "stop": 5}, "stop", "string"),
    (C, {"prompt": "x", "stop": ["a", 5]}, "stop", "got"),
    (C, {"prompt": "x", "logit_bias": {"1": "a"}}, "logit_bias.1", "number"),
    (C, {"prompt": "x", "response_format": {"type": "xml"}}, "response_format.type", "'text'"),
    (C, {"prompt": "x", "response_format": {"type": "json_object", "triggers": ["a"]}},
     "response_format.triggers", "with type 'structural_tag', got 'json_object'"),
    (C, {"prompt": "x", "temperature": -1}, "temperature", "must be in"),
    (C, {"prompt": "x", "logit_bias": {"a": 1}}, "logit_bias", "token ids as its keys, got 'a'"),
    (C, {"prompt": "x", "suffix": "y"}, "suffix", "not supported"),
    (C, {"prompt": "x", "max_tokens": 0}, "max_tokens", "at least 1"),
    (C, {"prompt": "x", "stream_options": {}}, "stream_options", "with stream=true"),
    (C, {"prompt": "x", "stream": True, "best_of": 2}, "best_of", "must not be above n"),
    (C, {"prompt": "x", "stream": True, "prompt_logprobs": 2}, "prompt_logprobs", "stream"),
    (C, {"prompt": "x", "guided_regex": "a", "guided_choice": ["b"]}, "guided_regex", "together"),
    (C, {"prompt": "x", "structured_outputs": {}}, "structured_outputs", "exactly one"),
    (C, {"prompt": "x", "n": 4097}, "n", "at most 4096, got 4097"),
    (C, {"prompt": ["x"] * 3, "n": 1366}, "n", "at most 1365 for each of 3 prompts"),
    (C, {"prompt": "x", "best_of": 5000}, "best_of", "at most 4096"),
    (CHAT, HI | {"n": 4097}, "n", "at most 4096"),
    (C, {"prompt": "refuse"}, "logprobs", "see (a path)"),
    (CHAT, {"messages": []}, "messages", "at least 1 message"),
    (CHAT, {"messages": [{"content": "x"}]}, "messages", "must have a role"),
    (CHAT, HI | {"tool_choice": "required"}, "tool_choice", "there are no tools"),
    (CHAT, HI | {"top_logprobs": 2}, "top_logprobs", "with logprobs=true"),
    (CHAT, HI | {"response_format": {"type": "json_schema"}}, "response_format", "missing"),
    (CHAT, HI | {"chat_template_kwargs": {"tools": 1}}, "chat_template_kwargs", "of the template"),
    ("/v1/embeddings", {"input": "x", "encoding_format": "hex"}, "encoding_format", "'float'"),
    ("/v1/embeddings", {"input": "x", "dimensions": 0}, "dimensions", "at least 1"),
    ("/tokenize", {"prompt": 5}, "prompt", "string"),
    ("/tokenize", {}, "prompt", "missing"),
    ("/detokenize", {"tokens": [-1]}, "tokens", "token id"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "param", "why"), REFUSED)
def test_what_is_wrong_is_named(
    make: Make, path: str, body: dict[str, Any], param: str | None, why: str
) -> None:
    client, _ = make()
    answer = client.post(path, json=body)
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["type"] == "invalid_request_error", error
    assert error["param"] == param and why in error["message"], error
    assert error.keys() == {"message", "type", "param", "code"} and len(answer.text) < 1500
    assert "secret" not in answer.text


def test_other_errors_have_the_same_shape(make: Make) -> None:
    client, llm = make({"api_keys": ("one", "two"), "max_body_bytes": 500, "max_waiting": 3})
    key = {"Authorization": "Bearer two"}
    body = {"prompt": "x"}

    def asked(status: int, *args: Any, **options: Any) -> dict[str, Any]:
        answer = client.request(*args, **({"headers": key} | options))
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        return error | {"headers": answer.headers}

    for wrong in ({}, {"Authorization": "Bearer on"}, {"Authorization": "Basic one"}):
        assert asked(401, "POST", C, json=body, headers=wrong)["code"] == "invalid_api_key"
    assert asked(404, "GET", "/v2")["type"] == "not_found_error"
    assert asked(404, "POST", C, json=body | {"model": "x"})["code"] == "model_not_found"
    assert asked(404, "GET", "/v1/models/x")["param"] == "model"
    assert asked(405, "GET", C)["headers"]["allow"] == "POST"
    assert asked(413, "POST", C, json={"prompt": "x" * 600})["code"] == "body_too_large"
    assert "Content-Type" in asked(400, "POST", C, content=b"{}")["message"]
    json_type = key | {"Content-Type": "application/json"}
    for content in (b"{", b"\xff", b"[" * 400, b"1" * 450, b'{"prompt": NaN}', b"5"):
        asked(400, "POST", C, content=content, headers=json_type)
    assert "secret" not in asked(500, "POST", C, json={"prompt": "bug"})["message"]
    llm.num_unfinished_requests = 5
    assert asked(503, "POST", C, json=body)["headers"]["retry-after"] == "1"
    llm.num_unfinished_requests = 4
    many = asked(503, "POST", C, json={"prompt": ["x", "y"]})["message"]
    assert many == "2 requests wait already, this one has 2 prompts, and at most 3 may wait"
    assert client.post(C, json=body, headers=key).status_code == 200
    assert client.get("/health").status_code == client.get("/version").status_code == 200
    llm.errored = True
    assert asked(503, "GET", "/health")["code"] == "engine_dead"
    assert client.head("/health").status_code == 503


@pytest.mark.parametrize(
    ("wanted", "limit", "expected"),
    [(None, None, None), (3, None, 3.0), (None, 5.0, 5.0), (3, 5.0, 3.0), (9, 5.0, 5.0)],
)
def test_seconds_are_those_of_the_request_within_the_servers(
    make: Make, wanted: float | None, limit: float | None, expected: float | None
) -> None:
    client, llm = make({"request_timeout": limit})
    for path, body in ((C, {"prompt": "x"}), (CHAT, HI), ("/v1/embeddings", {"input": "x"})):
        assert client.post(path, json=body | {"timeout": wanted}).status_code == 200
    assert llm.timeouts == [expected] * 3


def test_a_long_body_in_chunks_is_refused(make: Make) -> None:
    client, llm = make({"max_body_bytes": 500})
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b" " * 300, "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(asyncio.wait_for(client.app(http_scope(C), receive, send), HANG_S))
    assert sent[0]["status"] == 413 and not llm.asked


def test_many_prompts_and_samples_have_indices(make: Make) -> None:
    client, llm = make()
    body = {"prompt": ["a", "b"], "n": 2, "echo": True, "return_token_ids": True}
    answer = client.post(C, json=body).json()
    assert [one["index"] for one in answer["choices"]] == [0, 1, 2, 3]
    assert [one["text"] for one in answer["choices"]] == ["aHello", "aHello", "bHello", "bHello"]
    assert answer["choices"][3]["prompt_token_ids"] == [98]
    assert answer["choices"][3]["token_ids"] == list(b"Hello")
    assert answer["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 20,
        "total_tokens": 22,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    client.post(C, json={"prompt": [[1, 2], [3]], "cache_salt": "s"})
    assert [one for one, _ in llm.asked[2:]] == [
        {"prompt_token_ids": [1, 2], "cache_salt": "s"},
        {"prompt_token_ids": [3], "cache_salt": "s"},
    ]
    nothing = client.post(C, json={"prompt": "a", "echo": True, "max_tokens": 0}).json()
    assert nothing["choices"][0]["text"] == "a" and nothing["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize("continuous", [True, False])
def test_streams(make: Make, continuous: bool) -> None:
    client, _ = make()
    options = {"include_usage": True, "continuous_usage_stats": continuous}
    streamed = {"stream": True, "stream_options": options, "n": 2}
    answer = client.post(CHAT, json=HI | streamed, headers={"X-Request-Id": "mine"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    roles, *pieces, usage = events(answer.text)
    assert [one["delta"]["role"] for one in roles["choices"]] == ["assistant"] * 2
    for index in (0, 1):
        mine = [one["choices"][0] for one in pieces if one["choices"][0]["index"] == index]
        assert "".join(one["delta"]["content"] for one in mine) == "Hello"
        assert [one["finish_reason"] for one in mine] == [None] * 4 + ["stop"]
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 10
    assert {one["id"] for one in (roles, *pieces, usage)} == {"chatcmpl-mine"}
    assert all((one["usage"] is not None) == continuous for one in pieces)
    plain = events(client.post(C, json={"prompt": "a", "stream": True, "echo": True}).text)
    assert "".join(one["choices"][0]["text"] for one in plain) == "aHello"
    assert all("usage" not in one for one in plain)


def test_errors_of_streams(make: Make) -> None:
    """Before the first event an error has its status; later it is an event."""
    client, llm = make(error=EngineDeadError("the engine's process (pid 5) ended"))
    assert client.post(C, json={"prompt": "refuse", "stream": True}).status_code == 400
    for path, body in ((C, {"prompt": ["x", "y"]}), (CHAT, HI)):
        *_, last = events(client.post(path, json=body | {"stream": True}).text)
        assert last["error"]["code"] == "engine_dead" and last["error"]["type"] == "server_error"
    assert llm.open == 0


ASKED: list[tuple[str, dict[str, Any]]] = [
    (C, {"prompt": ["a", "b", "c"], "n": 2}), (CHAT, HI | {"n": 2}),
    ("/v1/responses", {"input": "a"}), ("/v1/messages", HI | {"model": "tiny", "max_tokens": 9}),
]  # fmt: skip


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("path", "body"), ASKED)
def test_who_leaves_ends_all_its_requests(make: Make, path: str, body: Any, stream: bool) -> None:
    client, llm = make(hangs=True)
    count = len(body.get("prompt", [0]))
    asyncio.run(leave(client.app, path, body | {"stream": stream}, llm, count))
    assert llm.open == 0


@pytest.mark.parametrize(("path", "body"), [*ASKED, ("/v1/embeddings", {"input": "a"})])
def test_nothing_is_tokenised_for_who_has_left(make: Make, path: str, body: Any) -> None:
    client, llm = make()

    class Endless(TextEncoder):
        async def ids(self, text: str, **options: Any) -> list[int]:
            llm.open += 1
            try:
                await asyncio.Event().wait()
            finally:
                llm.open -= 1
            return []

    encoder = Endless(llm.tokenizer, 9)
    llm.text_encoder = lambda: encoder  # type: ignore[method-assign]
    asyncio.run(leave(client.app, path, body, llm))
    assert llm.open == 0 and not llm.asked


def engine_lines(page: str) -> list[str]:
    """Lines but those about the server's process, whose time goes on."""
    return [line for line in page.splitlines() if "vllm:" in line or "jax_engine:" in line]


def test_metrics_wait_for_nobody(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page waits only a moment for an engine in a step. This engine never answers again."""
    client, llm = make()
    page = client.get("/metrics").text
    assert "process_cpu_seconds_total" in page and "python_info" in page
    assert 'vllm:request_success_total{finished_reason="stop",model_name="tiny"} 3.0' in page
    assert 'vllm:time_to_first_token_seconds_bucket{le="0.5",model_name="tiny"} 2.0' in page
    assert 'jax_engine:num_requests_swapped{engine="0",model_name="tiny"} 1.0' in page
    assert 'jax_engine:engine_alive{engine="0",model_name="tiny"} 1.0' in page
    llm.busy = True
    monkeypatch.setattr(stat_loggers, "WAIT_S", 0.01)
    assert engine_lines(client.get("/metrics").text) == engine_lines(page)


def test_models_tokens_and_embeddings(make: Make) -> None:
    client, llm = make({"allowed_origins": ("https://a.example",)})
    assert [one["id"] for one in client.get("/v1/models").json()["data"]] == ["tiny", "other"]
    assert client.get("/v1/models/other").json()["max_model_len"] == 4096
    chat = client.post("/tokenize", json=HI | {"return_token_strs": True}).json()
    assert bytes(chat["tokens"]) == b"[user]hi[assistant]" and chat["token_strs"][0] == "["
    assert client.post("/tokenize", json=HI).json() == chat | {"token_strs": None}
    assert client.post("/detokenize", json={"tokens": chat["tokens"]}).json() == {
        "prompt": "[user]hi[assistant]"
    }
    answer = client.post("/v1/embeddings", json={"input": [1, 2, 3], "truncate_prompt_tokens": 2})
    assert answer.json()["data"] == [{"index": 0, "embedding": [0.25, -1.0], "object": "embedding"}]
    assert (
        llm.asked[-1][0] == {"prompt_token_ids": [2, 3]}
        and answer.json()["usage"]["prompt_tokens"] == 3
    )
    pages = [client.get("/version", headers={"Origin": f"https://{x}.example"}) for x in "ab"]
    assert client.get("/openapi.json").json()["paths"].keys() >= ENDPOINTS
    found = [page.headers.get("access-control-allow-origin") for page in pages]
    assert found == ["https://a.example", None]


def test_the_server_needs_no_jax() -> None:
    code = """
import sys
import jax_engine.serving.api.app, jax_engine.serving.api.server, jax_engine.cli
jax_engine.cli.make_parser()
bad = {"jax", "jaxlib", "flax", "numba"} & set(sys.modules)
assert not bad, bad
"""
    subprocess.run([sys.executable, "-c", code], check=True)
