"""Prompts and outputs that do not fit the model's length are refused, with both numbers."""

import itertools
from typing import Any

import pytest

from tests.support.scripted_app import Make

LIMIT = 64
C, CHAT, RESPONSES, MESSAGES = (
    "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages",
)  # fmt: skip
TURN = "[user]" + "[assistant]"  # what the template adds


def body(path: str, length: int) -> dict[str, Any]:
    """A request whose prompt has a number of tokens, which are bytes."""
    if path == C:
        return {"prompt": "x" * length}
    text = "x" * (length - len(TURN))
    if path == RESPONSES:
        return {"input": text}
    messages = [{"role": "user", "content": text}]
    return {"messages": messages} | ({"model": "tiny"} if path == MESSAGES else {})


FIELDS = {
    C: ["max_tokens"], CHAT: ["max_tokens", "max_completion_tokens"],
    RESPONSES: ["max_output_tokens"], MESSAGES: ["max_tokens"],
}  # fmt: skip
CASES = [(path, field) for path, fields in FIELDS.items() for field in fields]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "field"), CASES)
def test_prompt_and_output_fit_together(make: Make, path: str, field: str, stream: bool) -> None:
    client, llm = make(max_model_len=LIMIT)
    for length, wanted in itertools.product((20, LIMIT - 1), (1, 43, 44, 45, 10**9, 2**63 - 1)):
        asked = len(llm.asked)
        given = {field: wanted, "stream": stream}
        answer = client.post(path, json=body(path, length) | given)
        if length + wanted <= LIMIT:
            assert answer.status_code == 200 and llm.asked[-1][1].max_tokens == wanted
            continue
        assert answer.status_code == 400 and len(llm.asked) == asked
        message = (
            f"{field} must be at most {LIMIT - length}, got {wanted}: the prompt has {length} "
            f"tokens, and max_model_len allows {LIMIT} of prompt and output together"
        )
        error = answer.json()["error"]
        assert error["message"] == message
        if path != MESSAGES:
            assert (error["param"], error["code"]) == (field, "context_length_exceeded")


@pytest.mark.parametrize(("path", "default"), [(C, 16), (CHAT, None), (RESPONSES, None)])
def test_without_a_number_the_rest_is_used(make: Make, path: str, default: int | None) -> None:
    client, llm = make(max_model_len=LIMIT)
    assert client.post(path, json=body(path, LIMIT - 1)).status_code == 200
    assert llm.asked[-1][1].max_tokens == default  # the engine ends at the length
    client, llm = make(max_model_len=LIMIT, defaults={"max_tokens": 10**6})
    assert client.post(path, json=body(path, LIMIT - 1)).status_code == 200


@pytest.mark.parametrize("path", FIELDS)
@pytest.mark.parametrize("length", [LIMIT, LIMIT + 1, 7 * LIMIT, 100_000])
def test_a_prompt_leaves_room_for_a_token(make: Make, path: str, length: int) -> None:
    client, llm = make(max_model_len=LIMIT)
    extra = {"max_tokens": 1} if path == MESSAGES else {}
    answer = client.post(path, json=body(path, length) | extra)
    message = answer.json()["error"]["message"]
    assert answer.status_code == 400 and not llm.asked
    exact = length <= 1024  # longer texts are refused by their length, if that is enough
    count = f"{length}" if exact else f"at least {-(-length // 7)}"
    assert message.startswith(f"the prompt has {count} tokens, max_model_len {LIMIT} allows 63")


@pytest.mark.parametrize(
    ("path", "name", "rest"),
    [
        ("/v1/embeddings", "input", {}),
        ("/pooling", "input", {}),
        ("/score", "text_1", {"text_2": "a"}),
        ("/rerank", "query", {"documents": ["a"]}),
    ],
)
def test_a_prompt_that_is_pooled_needs_no_room(
    make: Make, path: str, name: str, rest: dict[str, Any]
) -> None:
    client, llm = make(max_model_len=LIMIT)
    for length in (LIMIT, LIMIT + 1, 7 * LIMIT + 1, 100_000):
        answer = client.post(path, json={name: "x" * length} | rest)
        if length == LIMIT:
            assert answer.status_code == 200 and len(llm.asked[0][0]["prompt_token_ids"]) == LIMIT
            llm.asked.clear()
            continue
        count = f"{length}" if length <= 1024 else f"at least {-(-length // 7)}"
        error = answer.json()["error"]
        assert error["message"].startswith(
            f"the prompt has {count} tokens, max_model_len 64 allows 64: "
        )
        assert error["code"] == "context_length_exceeded" and not llm.asked


def test_ids_are_counted_too(make: Make) -> None:
    client, llm = make(max_model_len=LIMIT)
    fits = client.post(C, json={"prompt": [1] * 60, "max_tokens": 4})
    assert fits.status_code == 200
    answer = client.post(C, json={"prompt": [[1] * 9, [1] * 60], "max_tokens": 5})
    error = answer.json()["error"]
    assert "at most 4, got 5: the prompt has 60 tokens" in error["message"]
    assert error["param"] == "max_tokens" and len(llm.asked) == 1


@pytest.mark.parametrize(
    ("keep", "wanted", "kept"),
    [(10, 54, 10), (10, None, 10), (-1, 54, 10), (-1, 1, 63), (-1, None, -1), (63, 1, 63)],
)
@pytest.mark.parametrize("path", [C, CHAT])
def test_what_is_cut_may_be_longer(
    make: Make, path: str, keep: int, wanted: int | None, kept: int
) -> None:
    client, llm = make(max_model_len=LIMIT)
    cut = {"truncate_prompt_tokens": keep, "max_tokens": wanted}
    for length in (40, 100, 3000):
        answer = client.post(path, json=body(path, length) | cut)
        assert answer.status_code == 200, answer.text
        assert llm.asked[-1][1].truncate_prompt_tokens == kept


@pytest.mark.parametrize(
    ("keep", "wanted", "most", "count"),
    [(10, 55, 54, 10), (63, 2, 1, 63), (-1, 64, 63, 1), (-1, 10**9, 63, 1)],
)
def test_what_is_cut_must_fit_too(
    make: Make, keep: int, wanted: int, most: int, count: int
) -> None:
    client, llm = make(max_model_len=LIMIT)
    cut = {"truncate_prompt_tokens": keep, "max_tokens": wanted}
    error = client.post(C, json={"prompt": "x" * 100} | cut).json()["error"]
    assert f"at most {most}, got {wanted}: the prompt has {count} tokens" in error["message"]
    assert not llm.asked


def test_truncation_auto_leaves_room_for_the_output(make: Make) -> None:
    client, llm = make(max_model_len=LIMIT)
    given = {"truncation": "auto", "max_output_tokens": 30}
    assert client.post(RESPONSES, json=body(RESPONSES, 200) | given).status_code == 200
    assert llm.asked[-1][1].truncate_prompt_tokens == 34


def test_echo_alone_needs_no_room(make: Make) -> None:
    client, _ = make(max_model_len=LIMIT)
    given = {"echo": True, "max_tokens": 0}
    assert client.post(C, json=body(C, LIMIT - 1) | given).status_code == 200


def test_a_text_of_any_length_is_counted(make: Make) -> None:
    client, _ = make(max_model_len=LIMIT)
    for length in (LIMIT, 100_000):
        assert client.post("/tokenize", json={"prompt": "x" * length}).json()["count"] == length
        chat = body(MESSAGES, length)
        answer = client.post(f"{MESSAGES}/count_tokens", json=chat).json()
        assert answer == {"input_tokens": length}


def test_embeddings_have_the_same_limit(make: Make) -> None:
    client, llm = make(max_model_len=LIMIT)
    answer = client.post("/v1/embeddings", json={"input": ["x", "x" * 100_000]})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "input") and not llm.asked
    assert error["code"] == "context_length_exceeded"
    cut: Any = {"input": "x" * 100_000, "truncate_prompt_tokens": 5}
    assert client.post("/v1/embeddings", json=cut).status_code == 200
    assert llm.asked[-1][0] == {"prompt_token_ids": [120] * 5}
