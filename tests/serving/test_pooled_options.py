"""Options of `/v1/embeddings`, `/pooling`, `/classify`, `/score` and `/rerank` that vLLM has."""

import base64
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.support.scripted_app import Make, scripted_app

VECTOR = [0.25, -1.0]  # what the scripted engine says
SAY = [{"role": "user", "content": "Once"}]
DTYPES = {
    "float32": "f4",
    "float16": "f2",
    "bfloat16": ml_dtypes.bfloat16,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
}
SIDES = [
    ("text_1", "text_2"), ("data_1", "data_2"), ("queries", "documents"), ("queries", "items"),
]  # fmt: skip


@pytest.fixture
def make(checkpoint: Path) -> Make:
    return scripted_app(checkpoint)


@pytest.mark.parametrize("endianness", ["native", "little", "big"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("path", ["/v1/embeddings", "/pooling"])
def test_numbers_are_written_as_asked(make: Make, path: str, dtype: str, endianness: str) -> None:
    client, _ = make()
    form = {"encoding_format": "base64", "embed_dtype": dtype, "endianness": endianness}
    [item] = client.post(path, json={"input": "x"} | form).json()["data"]
    kind = np.dtype(DTYPES[dtype])
    found = np.frombuffer(base64.b64decode(item["embedding" if "v1" in path else "data"]), kind)
    if endianness == "big":
        found = found.byteswap()
    assert found.astype(np.float32).tolist() == VECTOR
    [plain] = client.post(path, json={"input": "x", "embed_dtype": dtype}).json()["data"]
    assert plain["embedding" if "v1" in path else "data"] == VECTOR


@pytest.mark.parametrize("names", SIDES)
def test_both_sides_have_vllm_s_names(make: Make, names: tuple[str, str]) -> None:
    client, llm = make()
    left, right = names
    answer = client.post("/score", json={left: "a", right: ["b", "cd"]})
    assert len(answer.json()["data"]) == 2
    assert [one["prompt"] for one, _ in llm.asked] == ["a", "b", "cd"]
    wrong: list[tuple[dict[str, Any], str, str]] = [
        ({left: "a"}, right if left != "queries" else "documents", "is missing"),
        ({left: ["a", "b"], right: ["c"]}, left, f"{left} must hold 1 text or as many as {right}"),
        ({left: "a", right: []}, right, f"{right} must hold 1 to 2048 texts, got 0"),
    ]
    for body, param, why in wrong:
        error = client.post("/score", json=body).json()["error"]
        assert error["param"] == param and why in error["message"], error


@pytest.mark.parametrize(
    ("body", "param", "why"),
    [
        ({}, "text_1", "text_1 is missing"),
        ({"text_1": "a", "data_2": "b"}, "text_2", "text_2 is missing"),
        ({"text_1": "a", "text_2": "b", "items": "c"}, "items", "items must not be given beside"),
    ],
)
def test_sides_that_do_not_go_together(
    make: Make, body: dict[str, Any], param: str, why: str
) -> None:
    client, llm = make()
    error = client.post("/score", json=body).json()["error"]
    assert (error["param"], llm.asked) == (param, []) and error["message"].startswith(why)


@pytest.mark.parametrize("path", ["/v1/embeddings", "/pooling"])
def test_a_conversation_is_one_prompt(make: Make, path: str) -> None:
    """Its template writes it whole; a header for an answer, and special tokens, if asked for."""
    client, llm = make()
    for more, prompt in (
        ({}, "[user]Once"),
        ({"add_generation_prompt": True}, "[user]Once[assistant]"),
    ):
        answer = client.post(path, json={"messages": SAY} | more)
        assert answer.status_code == 200 and len(answer.json()["data"]) == 1
        assert llm.asked[-1][0]["prompt"] == prompt
    for body, param, why in (
        ({"messages": SAY, "input": "x"}, "messages", "must not be given together"),
        ({}, "input", "input must be a string"),
        ({"input": "x" * 9000}, "input", "has 9000 tokens"),
        ({"messages": []}, "messages", "at least 1 message"),
        ({"messages": SAY, "chat_template": "x"}, "chat_template", "does not run templates"),
        ({"messages": [{"role": "user", "content": "x" * 9000}]}, "messages", "has 9006 tokens"),
    ):
        error = client.post(path, json=body).json()["error"]
        assert error["param"] == param and why in error["message"], error


@pytest.mark.parametrize("side", [None, "left", "right"])
def test_either_end_is_cut(make: Make, side: str | None) -> None:
    client, llm = make()
    body = {"truncate_prompt_tokens": 2, "truncation_side": side}
    for path, name, rest in (
        ("/v1/embeddings", "input", {}),
        ("/score", "text_1", {"text_2": "abc"}),
        ("/rerank", "query", {"documents": ["abc"]}),
    ):
        llm.asked.clear()
        assert client.post(path, json={name: "abc"} | rest | body).status_code == 200
        wanted = b"ab" if side == "right" else b"bc"
        assert {bytes(one["prompt_token_ids"]) for one, _ in llm.asked} == {wanted}


def test_activation_of_a_reranker(make: Make) -> None:
    client, llm = make(head_task="classify", labels=["x"])
    for name in ("use_activation", "activation", "softmax"):
        for value in (False, True, None):
            pair = {"query": "a", "documents": ["b"], name: value}
            assert client.post("/rerank", json=pair).status_code == 200
            assert llm.asked[-1][1].use_activation is value
