"""Requests that clients send by mistake: addresses with a slash too many, numbers written 9.0."""

from typing import Any

import pytest

from tests.support.scripted_app import Make

MESSAGES = [{"role": "user", "content": "x"}]
CHAT: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "max_tokens": 9}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": "x"},
    "/v1/embeddings": {"input": "x"},
    "/v1/messages": CHAT,
    "/v1/responses": {"input": "x"},
    "/tokenize": {"prompt": "x"},
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("written", ["/{}", "{}/", "//{}//"])
def test_a_slash_too_many_is_none(written: str, path: str, make: Make) -> None:
    """A base URL may end with a slash, and a client begin its paths with another."""
    client, llm = make(text="Hello")
    url = f"http://testserver{written.format(path)}"
    answer = client.post(url, json=BODIES[path], follow_redirects=False)
    assert answer.status_code == 200 and llm.open == 0


def test_a_slash_too_many_leaves_the_page_and_asks_for_a_key(make: Make) -> None:
    client, _ = make({"api_keys": ["secret"], "root_path": "/prefix"})
    for path in ("/", "//", "/prefix", "//prefix//", "//health/", "//prefix/health"):
        assert client.get(f"http://testserver{path}").status_code == 200
    for path in ("//v1/models", "/v1/models/", "/v1//models", "/prefix//v1/models"):
        url = f"http://testserver{path}"
        assert client.get(url).status_code == 401
        assert client.get(url, headers={"Authorization": "Bearer secret"}).status_code == 200


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/v1/chat/completions", None),
        ("/V1/Chat/Completions", "/v1/chat/completions"),
        ("/models", "/v1/models"),
        ("/v1/tokenize", "/tokenize"),
        ("/v1/health", "/health"),
        ("/api/chat", None),
        ("/v1/", None),
    ],
)
def test_a_base_url_that_is_wrong_is_told(path: str, near: str | None, make: Make) -> None:
    client, _ = make()
    answer = client.post(path, json=CHAT)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (404, "not_found")
    said = f": did you mean {near}" if near else ""
    assert error["message"] == f"there is nothing at {path.rstrip('/')!r}{said}"


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/chat/completions", "max_tokens"), ("/v1/chat/completions", "seed"),
        ("/v1/chat/completions", "n"), ("/v1/chat/completions", "top_k"),
        ("/v1/completions", "max_tokens"), ("/v1/completions", "logprobs"),
        ("/v1/messages", "max_tokens"), ("/v1/messages", "top_k"),
        ("/v1/responses", "max_output_tokens"), ("/v1/embeddings", "truncate_prompt_tokens"),
    ],
)  # fmt: skip
def test_a_whole_number_may_have_a_point(path: str, field: str, make: Make) -> None:
    """Languages that know floats alone write 9 as 9.0."""
    asked = []
    for value in (2, 2.0):
        client, llm = make(text="Hello")
        answer = client.post(path, json=BODIES[path] | {field: value})
        assert answer.status_code == 200, answer.text
        asked.append(llm.asked)
    assert asked[0] == asked[1]
    client, _ = make(text="Hello")
    for value in (2.5, 1e300, "2", True):
        answer = client.post(path, json=BODIES[path] | {field: value})
        assert answer.status_code == 400 and field in answer.text


def test_a_number_of_any_kind_is_itself(make: Make) -> None:
    client, llm = make(text="Hello")
    body = CHAT | {"temperature": 1, "top_p": 1.0, "presence_penalty": -0.0}
    assert client.post("/v1/chat/completions", json=body).status_code == 200
    [(_, params)] = llm.asked
    found = params.temperature, params.top_p, params.presence_penalty
    assert found == (1, 1, 0) and {type(one) for one in found} == {float}
