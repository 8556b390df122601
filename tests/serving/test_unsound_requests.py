"""Requests that break what reads them: great depth, lone surrogates, endless heads, bare words."""

import asyncio
import json
import socket
from typing import Any

import pytest

from jax_engine.serving.api import http_protocol, middleware
from jax_engine.serving.api.http_protocol import MAX_HEAD, BoundedHead
from jax_engine.serving.api.request_fields import MAX_DEPTH, MAX_MESSAGES, MAX_TOOLS, problem_of
from tests.support.patience import HANG_S
from tests.support.scripted_app import Make, served

BODIES: dict[str, tuple[dict[str, Any], str]] = {  # and a field that holds any text
    "/v1/completions": ({"prompt": "x"}, "prompt"),
    "/v1/chat/completions": ({"messages": [{"role": "user", "content": "x"}]}, "tools"),
    "/v1/responses": ({"input": "x"}, "metadata"),
    "/v1/messages": (
        {"model": "tiny", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]},
        "system",
    ),
    "/v1/embeddings": ({"input": "x"}, "input"),
    "/tokenize": ({"prompt": "x"}, "prompt"),
}


def nested(depth: int, leaf: Any = 1) -> Any:
    value: Any = leaf
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("a\ud800", "must be valid Unicode"),
        ([{"type": "text", "\udfff": "a"}], "must be valid Unicode"),
        ({"a": [["\ud800"]]}, "must be valid Unicode"),
        (nested(MAX_DEPTH + 1), "must not be nested deeper than 128 levels"),
    ],
)
def test_what_cannot_be_read_or_written_is_refused(
    make: Make, path: str, value: Any, why: str
) -> None:
    client, llm = make()
    body, field = BODIES[path]
    assert client.post(path, json=body).status_code == 200
    asked = len(llm.asked)
    content = json.dumps(body | {field: value})
    answer = client.post(path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400 and f"{field} {why}" in answer.text, answer.text
    if path != "/v1/messages":  # Anthropic's errors name no field
        assert answer.json()["error"]["param"] == field
    assert len(llm.asked) == asked


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "deeper than 128 levels"),
        (b"[" * 100_000 + b"]" * 100_000, "deeper than 128 levels"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "deeper than 128 levels"),
        (b'{"prompt": "x", "max_tokens": ' + b"9" * 5000 + b"}", "no number of more than 4300"),
        (b'{"prompt": "\xff"}', "must be JSON in UTF-8"),
        (b'{"prompt": "x"', "must be JSON: "),
    ],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/messages", "/tokenize", "/v1/rerank"])
def test_why_a_body_cannot_be_read(make: Make, path: str, content: bytes, why: str) -> None:
    client, llm = make()
    answer = client.post(path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400 and why in answer.text, answer.text
    assert not llm.asked


def test_how_deep_is_too_deep() -> None:
    for leaf in (1, "x", {}):
        inner = isinstance(leaf, dict)  # one level itself
        assert problem_of(nested(MAX_DEPTH - inner, leaf)) is None
        assert problem_of(nested(MAX_DEPTH + 1 - inner, leaf)) is not None
        assert problem_of({"a": nested(MAX_DEPTH - inner, leaf)}) is not None


def test_all_other_letters_are_taken() -> None:
    assert problem_of(["é", {"ü": 1.0}, None, True, "\N{GRINNING FACE}"]) is None


@pytest.mark.parametrize("name", ["a" * 257, "a\nb", "\0", "\u202e", "a\x85"])
def test_ids_are_short_and_printable(make: Make, name: str) -> None:
    client, llm = make()
    for path in [one for one in BODIES if one not in ("/v1/messages", "/tokenize")]:
        answer = client.post(path, json=BODIES[path][0] | {"request_id": name})
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == "request_id"
    if name.isascii() and name.isprintable():
        answer = client.post(
            "/v1/completions", json={"prompt": "x"}, headers={"X-Request-Id": name}
        )
        assert answer.json()["error"]["param"] == "X-Request-Id"
    assert not llm.asked
    given = client.post("/v1/completions", json={"prompt": "x", "request_id": "é" * 256})
    assert given.json()["id"] == "cmpl-" + "é" * 256


def test_a_key_may_have_any_letters(make: Make) -> None:
    client, _ = make({"api_keys": ("sécret",)})
    for key, status in (("sécret", 200), ("secret", 401)):
        headers = {b"Authorization": f"Bearer {key}".encode()}
        assert client.get("/v1/models", headers=headers).status_code == status


def test_an_embeddings_id_is_that_of_the_engines_request(make: Make) -> None:
    client, llm = make()
    body = {"input": ["x", "y"], "request_id": "a"}
    assert client.post("/v1/embeddings", json=body).json()["id"] == "embd-a"
    assert llm.request_ids == ["embd-a/0#0", "embd-a/1#1"]


def sent(url: str, *pieces: bytes) -> bytes:
    """What a server answers to pieces of data until it closes the connection."""
    with socket.create_connection(
        ("127.0.0.1", int(url.rpartition(":")[2])), timeout=HANG_S
    ) as one:
        found = b""
        try:
            for piece in pieces:
                one.sendall(piece)
            while data := one.recv(1 << 16):
                found += data
        except ConnectionError:  # it has closed before all was sent
            pass
        return found


BEGIN = b"GET /health HTTP/1.1\r\nHost: x\r\n"
END = b"Connection: close\r\n\r\n"


def test_heads_have_a_size_and_a_time(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_S", HANG_S)
    client, _ = make()
    with served(client.app, BoundedHead) as url:
        header = b"X: " + b"a" * (MAX_HEAD // 2) + b"\r\n"
        assert sent(url, BEGIN, header, END).startswith(b"HTTP/1.1 200")
        kept = BEGIN + END.replace(b"close", b"keep-alive")
        assert sent(url, kept + BEGIN + header + END).count(b"HTTP/1.1 200") == 2
        half = b"a" * (MAX_HEAD // 2)
        for pieces in ([BEGIN + b"X: ", half, half, half], [BEGIN + header * 3 + END]):
            assert sent(url, *pieces).startswith(b"HTTP/1.1 400")
        for nonsense in (b"\x16\x03\x01\r\n\r\n", BEGIN + b"Content-Length: -1\r\n\r\n"):
            answer = sent(url, nonsense)
            assert answer.startswith(b"HTTP/1.1 400") and b'{"error":{"message":' in answer
        monkeypatch.setattr(http_protocol, "HEAD_S", 0.2)
        assert sent(url, BEGIN) == b""  # and nothing more: it is closed
        monkeypatch.setattr(http_protocol, "HEAD_S", HANG_S)
        assert sent(url, BEGIN, END).startswith(b"HTTP/1.1 200")


def test_a_body_has_a_time(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "BODY_S", 0.5)
    client, llm = make()
    for path in ("/v1/completions", "/v1/messages"):
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        head += "Content-Length: 9\r\n\r\n"
        with served(client.app, BoundedHead) as url:
            answer = sent(url, head.encode(), b'{"pro')  # ends: the connection is closed
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"must be complete within 0.5 seconds" in answer
    assert not llm.asked


def test_the_time_of_a_body_is_not_that_of_its_answer(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "BODY_S", 0.2)
    client, llm = make()
    generate = llm.generate

    async def late(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0.6)
        async for one in generate(*args, **kwargs):
            yield one

    monkeypatch.setattr(llm, "generate", late)
    for stream in (False, True):
        answer = client.post("/v1/completions", json={"prompt": "x", "stream": stream})
        assert answer.status_code == 200 and "error" not in answer.text


@pytest.mark.parametrize(
    ("path", "field", "limit"),
    [
        *[(path, "messages", MAX_MESSAGES) for path in ("/v1/chat/completions", "/v1/messages")],
        ("/v1/responses", "input", MAX_MESSAGES),
        *[
            (path, "tools", MAX_TOOLS)
            for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages")
        ],
    ],
)
def test_lists_have_a_limit(make: Make, path: str, field: str, limit: int) -> None:
    client, llm = make()
    body = BODIES[path][0] | {field: [{}] * (limit + 1)}
    answer = client.post(path, json=body)
    assert answer.status_code == 400 and f"at most {limit} items" in answer.text, answer.text
    assert field in answer.text and not llm.asked
    allowed = client.post(path, json=body | {field: [{}] * limit})  # wrong, but not too many
    assert "at most" not in allowed.text
