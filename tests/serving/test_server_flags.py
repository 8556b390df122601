"""Flags of the server that change every request or answer."""

import re
import stat
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from jax_engine import ConfigError
from jax_engine.commands import serve
from jax_engine.serving.api.server import bound_socket, bound_unix_socket, run
from tests.support.patience import HANG_S
from tests.support.scripted_app import Make, asked_prompt, events

C, CHAT = "/v1/completions", "/v1/chat/completions"
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
BODIES: dict[str, dict[str, Any]] = {C: {"prompt": "x"}, CHAT: HI}


@pytest.mark.parametrize("prefix", ["/llm", "/a/b"])
def test_a_proxys_prefix_is_taken_off(make: Make, prefix: str) -> None:
    client, _ = make({"root_path": prefix, "api_keys": ("k",)})
    key = {"Authorization": "Bearer k"}
    for before in ("", prefix):
        assert client.get(f"{before}/health").status_code == 200  # it needs no key
        assert client.get(f"{before}/v1/models").status_code == 401
        assert client.get(f"{before}/v1/models", headers=key).json()["data"]
        answer = client.post(f"{before}{C}", json={"prompt": "x"}, headers=key)
        assert answer.json()["choices"][0]["text"] == "Hello"
    assert "<html" in client.get(prefix).text == client.get(f"{prefix}/").text
    assert f"'{prefix}/openapi.json'" in client.get(f"{prefix}/docs").text
    assert client.get(f"{prefix}x/health", headers=key).status_code == 404
    assert client.get(f"/x{prefix}/health", headers=key).status_code == 404


def test_errors_of_a_prefixed_path_have_its_form(make: Make) -> None:
    client, _ = make({"root_path": "/llm"})
    assert client.post("/llm/v1/messages", json={}).json()["type"] == "error"
    assert "error" in client.post(f"/llm{C}", json={}).json()


@pytest.mark.parametrize(("path", "status"), [
    ("/health", 200), ("/v1/models", 401), ("/nothing", 401),
])  # fmt: skip
def test_all_answers_have_an_id_if_the_server_says_so(make: Make, path: str, status: int) -> None:
    client, _ = make({"request_id_headers": True, "api_keys": ("k",)})
    answers = [client.get(path) for _ in range(2)]
    assert {one.status_code for one in answers} == {status}
    ids = [one.headers["X-Request-Id"] for one in answers]
    assert ids[0] != ids[1] and all(re.fullmatch("[0-9a-f]{32}", one) for one in ids)
    assert client.get(path, headers={"X-Request-Id": "mine"}).headers["X-Request-Id"] == "mine"
    assert len(client.get(path, headers={"X-Request-Id": ""}).headers["X-Request-Id"]) == 32
    plain, _ = make()
    assert "X-Request-Id" not in plain.get("/health", headers={"X-Request-Id": "mine"}).headers


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("own", [None, "mine"])
def test_the_header_and_the_answer_have_one_id(make: Make, own: str | None, stream: bool) -> None:
    client, llm = make({"request_id_headers": True})
    headers = {} if own is None else {"X-Request-Id": own}
    answer = client.post(CHAT, json=HI | {"stream": stream}, headers=headers)
    found = events(answer.text)[0] if stream else answer.json()
    assert found["id"] == f"chatcmpl-{answer.headers['X-Request-Id']}"
    assert own in (None, answer.headers["X-Request-Id"])
    assert str(llm.request_ids[0]).startswith(found["id"])


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}])
def test_streams_say_what_was_used_if_the_server_does(make: Make, path: str, options: Any) -> None:
    client, _ = make({"force_include_usage": True})
    body = BODIES[path] | {"stream": True, "stream_options": options}
    found = events(client.post(path, json=body).text)
    assert all(one["usage"]["total_tokens"] > 0 for one in found)
    assert found[-1]["choices"] == [] and found[-1]["usage"]["completion_tokens"] == 5
    counts = [one["usage"]["completion_tokens"] for one in found[:-1]]
    assert counts == sorted(counts) and counts[-1] == 5
    assert client.post(path, json=BODIES[path]).json()["usage"]["completion_tokens"] == 5
    wrong = client.post(path, json=BODIES[path] | {"stream_options": {}})
    assert wrong.status_code == 400 and wrong.json()["error"]["param"] == "stream_options"


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_are_ids_if_the_server_says_so(make: Make, stream: bool) -> None:
    client, _ = make({"return_tokens_as_token_ids": True})
    for more in ({}, {"return_tokens_as_token_ids": False}):
        body = BODIES[C] | more | {"logprobs": 1, "echo": True, "stream": stream}
        answer = client.post(C, json=body)
        found = events(answer.text) if stream else [answer.json()]
        tokens = [one for event in found for one in event["choices"][0]["logprobs"]["tokens"]]
        assert tokens[-5:] == [f"token_id:{one}" for one in b"Hello"]
        body = BODIES[CHAT] | more | {"logprobs": True, "top_logprobs": 1}
        content = client.post(CHAT, json=body).json()["choices"][0]["logprobs"]["content"]
        assert [one["token"] for one in content] == [f"token_id:{one}" for one in b"Hello"]
        assert [one["bytes"] for one in content] == [[one] for one in b"Hello"]
    answer = client.post("/v1/responses", json={
        "input": "x", "include": ["message.output_text.logprobs"],
    })  # fmt: skip
    logprobs = answer.json()["output"][0]["content"][0]["logprobs"]
    assert [one["token"] for one in logprobs] == [f"token_id:{one}" for one in b"Hello"]


@pytest.mark.parametrize(
    ("config", "suggested", "asked", "wanted"),
    [
        ({}, None, None, {C: 16, CHAT: None}),
        ({}, None, 40, {C: 40, CHAT: 40}),
        # What the model's makers suggest is a default: of chats, since a completion's is 16.
        ({}, 30, None, {C: 16, CHAT: 30}),
        ({}, 30, 40, {C: 40, CHAT: 40}),
        # What the operator says is a limit.
        ({"override_generation_config": {"max_new_tokens": 30}}, 30, None, {C: 16, CHAT: 30}),
        ({"override_generation_config": {"max_new_tokens": 30}}, 30, 40, {C: 30, CHAT: 30}),
        ({"override_generation_config": {"max_new_tokens": 30}}, 30, 20, {C: 20, CHAT: 20}),
        ({"override_generation_config": {"max_new_tokens": 3}}, 3, None, {C: 3, CHAT: 3}),
        ({"override_generation_config": {"top_k": 3}}, 30, 40, {C: 40, CHAT: 40}),
        ({"generation_config": "folder"}, 30, 40, {C: 30, CHAT: 30}),
        ({"generation_config": "folder"}, None, 40, {C: 40, CHAT: 40}),
        ({"generation_config": "vllm"}, None, 40, {C: 40, CHAT: 40}),
    ],
)
def test_who_starts_the_server_may_limit_outputs(
    make: Make, config: dict[str, Any], suggested: int | None, asked: int | None, wanted: Any
) -> None:
    client, llm = make(defaults={} if suggested is None else {"max_tokens": suggested})
    for name, value in config.items():
        setattr(llm.config, name, value)
    for path, expected in wanted.items():
        answer = client.post(path, json=BODIES[path] | {"max_tokens": asked})
        assert answer.status_code == 200, answer.text
        assert llm.asked[-1][1].max_tokens == expected, path


OPTIONS = "{{ mode|default('plain') }}|{{ depth|default(0) }}|{{ reasoning_effort|default('') }}"
SAY: list[dict[str, str]] = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("more", "written"),
    [
        ({}, "server|3|"),
        ({"chat_template_kwargs": {"mode": "mine"}}, "mine|3|"),
        ({"chat_template_kwargs": {"mode": None}}, "None|3|"),
        ({"chat_template_kwargs": None}, "server|3|"),
    ],
)
def test_templates_have_the_servers_options_below_the_requests(
    make: Make, more: dict[str, Any], written: str
) -> None:
    """In all endpoints that write a conversation down."""
    settings = {"mode": "server", "depth": 3}
    client, llm = make({"chat_template": OPTIONS, "chat_template_kwargs": settings})
    bodies: dict[str, dict[str, Any]] = {
        CHAT: {"messages": SAY}, "/v1/responses": {"input": "hi"}, "/tokenize": {"messages": SAY},
    }  # fmt: skip
    for path, body in bodies.items():
        answer = client.post(path, json=body | more)
        assert answer.status_code == 200, answer.text
        if path == "/tokenize":
            assert bytes(answer.json()["tokens"]).decode() == written
        else:
            assert asked_prompt(llm) == written
    if not more:
        body = {"model": "tiny", "messages": SAY, "max_tokens": 4}
        answer = client.post("/v1/messages", json=body)
        assert answer.status_code == 200 and asked_prompt(llm) == written
    plain, llm = make({"chat_template": OPTIONS})
    plain.post(CHAT, json=HI)
    assert asked_prompt(llm) == "plain|0|"


@pytest.mark.parametrize(("form", "written"), [("string", "True"), ("openai", "False")])
def test_contents_have_the_form_that_the_server_says(make: Make, form: str, written: str) -> None:
    template = "{{ messages[0].content is string }}"
    client, llm = make({"chat_template": template, "content_format": form})
    for content in ("hi", [{"type": "text", "text": "hi"}]):
        client.post(CHAT, json={"messages": [{"role": "user", "content": content}]})
        assert asked_prompt(llm) == written


def test_efforts_are_told_in_the_templates_words(make: Make) -> None:
    """The request's come before the server's, whichever way it names them."""
    efforts = {"medium": "low", "xhigh": "max"}
    settings: dict[str, Any] = {"chat_template": OPTIONS, "reasoning_efforts": efforts}
    for options, asked, effort in (
        ({}, None, ""), ({}, "medium", "low"), ({}, "high", "high"), ({}, "xhigh", "max"),
        ({"reasoning_effort": "none"}, None, "none"),
        ({"reasoning_effort": "none"}, "high", "high"),
    ):  # fmt: skip
        client, llm = make(settings | {"chat_template_kwargs": options})
        client.post(CHAT, json=HI | {"reasoning_effort": asked})
        assert asked_prompt(llm) == f"plain|0|{effort}"
        client.post("/v1/responses", json={"input": "hi", "reasoning": {"effort": asked}})
        assert asked_prompt(llm) == f"plain|0|{effort}"


@pytest.mark.parametrize(
    ("choice", "excludes", "told"),
    [("none", True, 0), ("none", False, 1), ("auto", True, 1), (None, True, 1)],
)
def test_templates_are_told_of_forbidden_tools_unless_the_server_says_not(
    make: Make, choice: str | None, excludes: bool, told: int
) -> None:
    template = "{{ tools|default([], true)|length }}"
    client, llm = make({"chat_template": template, "exclude_forbidden_tools": excludes})
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    answer = client.post(CHAT, json=HI | {"tools": tools, "tool_choice": choice})
    assert answer.status_code == 200 and asked_prompt(llm) == str(told)


def test_either_of_two_keys_is_enough(make: Make) -> None:
    client, _ = make({"api_keys": ("a", "b")})
    for key, status in (("a", 200), ("b", 200), ("ab", 401), ("a b", 401), ("", 401)):
        answer = client.get("/v1/models", headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == status, key


def test_web_pages_of_others_may_do_what_the_server_says(make: Make) -> None:
    asks = {"Origin": "https://a", "Access-Control-Request-Method": "POST"}
    asks |= {"Access-Control-Request-Headers": "X-Mine"}
    client, _ = make({"allowed_origins": ("https://a",)})
    answer = client.options(CHAT, headers=asks)
    assert answer.status_code == 200 and "access-control-allow-credentials" not in answer.headers
    client, _ = make({
        "allowed_origins": ("https://a",), "allowed_methods": ("GET",),
        "allowed_headers": ("X-Mine",), "allow_credentials": True,
    })  # fmt: skip
    assert client.options(CHAT, headers=asks).status_code == 400
    answer = client.options(CHAT, headers=asks | {"Access-Control-Request-Method": "GET"})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-credentials"] == "true"


def test_the_documents_can_be_left_out(make: Make) -> None:
    client, _ = make({"has_docs": False})
    assert [client.get(path).status_code for path in ("/docs", "/openapi.json")] == [404, 404]
    assert client.get("/health").status_code == client.get("/").status_code == 200


def test_a_unix_socket_serves(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server listens at a path; what one left behind there is replaced, and nothing else is."""
    path = str(tmp_path / "socket")
    bound_unix_socket(path).close()
    assert stat.S_ISSOCK(Path(path).stat().st_mode)  # a server that was killed
    listening = bound_unix_socket(path)
    with pytest.raises(ConfigError, match=r"uds .* cannot be had"):
        bound_unix_socket(path)
    client, _ = make()
    llm: Any = SimpleNamespace(
        is_running=True,
        dead_error="enough",
        shutdown=lambda seconds: None,
        num_unfinished_requests=0,
    )
    monkeypatch.setattr("jax_engine.serving.api.server.LAST_WORDS_S", 0.0)
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    app: Any = client.app
    thread = threading.Thread(target=run, args=(app, llm, listening, 1.0))
    thread.start()
    try:
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=path), timeout=HANG_S) as http:
            answer = http.post(f"http://any{C}", json={"prompt": "x"})
            assert answer.json()["choices"][0]["text"] == "Hello"
            assert http.get("http://any/health").status_code == 200
    finally:
        llm.is_running = False
        thread.join(HANG_S)
        listening.close()
    assert not thread.is_alive()


def test_no_file_is_replaced_by_a_socket(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("mine")
    for path in (file, tmp_path, tmp_path / "no" / "folder", tmp_path / ("x" * 200)):
        with pytest.raises(ConfigError, match="uds"):
            bound_unix_socket(str(path))
    assert file.read_text() == "mine"


@pytest.mark.parametrize("tls", [None, object()])
def test_how_addresses_are_written(tmp_path: Path, tls: Any) -> None:
    path = str(tmp_path / "socket")
    with bound_unix_socket(path) as one, bound_socket("127.0.0.1", 0) as other:
        begin = "https" if tls else "http"
        assert serve._address(one, tls) == f"{begin}+unix:{path}"
        assert serve._address(other, tls).startswith(f"{begin}://127.0.0.1:")
