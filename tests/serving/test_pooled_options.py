"""Options of `/v1/embeddings`, `/pooling`, `/classify`, `/score` and `/rerank` that vLLM has."""

import base64
import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jax_engine.serving.api.openai.embeddings import MAX_DESCRIBED
from tests.support.scripted_app import Make
from tests.support.scripted_llm import ScriptedLLM

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


@pytest.mark.parametrize("form", ["bytes", "bytes_only"])
@pytest.mark.parametrize("endianness", ["native", "big"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("path", ["/v1/embeddings", "/pooling"])
def test_vectors_as_bytes(make: Make, path: str, dtype: str, endianness: str, form: str) -> None:
    """One vector after another; a header in JSON says where each is."""
    client, _ = make()
    body = {"input": ["x", "yy"], "embed_dtype": dtype, "endianness": endianness}
    answer = client.post(path, json=body | {"encoding_format": form, "request_id": "abc"})
    assert answer.headers["content-type"] == "application/octet-stream"
    kind = np.dtype(DTYPES[dtype])
    found = np.frombuffer(answer.content, kind)
    found = found.byteswap() if endianness == "big" else found
    assert found.astype(np.float32).tolist() == VECTOR * 2
    if form == "bytes_only":
        assert "metadata" not in answer.headers
        return
    about, size = json.loads(answer.headers["metadata"]), 2 * kind.itemsize
    same = {"embed_dtype": dtype, "endianness": endianness, "shape": [2]}
    assert about.pop("data") == [
        same | {"index": i, "start": i * size, "end": (i + 1) * size} for i in (0, 1)
    ]
    assert about.pop("usage") == {"prompt_tokens": 6, "total_tokens": 6}
    assert about.pop("id").endswith("-abc") and about.pop("created") > 0
    assert about == {"model": "tiny"}


def test_a_header_describes_as_many_vectors_as_clients_read(make: Make) -> None:
    client, llm = make()
    body = {"input": ["x"] * MAX_DESCRIBED, "encoding_format": "bytes", "embed_dtype": "fp8_e4m3"}
    answer = client.post("/v1/embeddings", json=body)
    assert answer.status_code == 200 and len(answer.headers["metadata"]) < 60_000
    llm.asked.clear()
    body["input"] = ["x"] * (MAX_DESCRIBED + 1)
    error = client.post("/v1/embeddings", json=body).json()["error"]
    assert (error["param"], llm.asked) == ("encoding_format", [])
    assert "for 400 inputs, got 401. 'bytes_only' does not" in error["message"]
    answer = client.post("/v1/embeddings", json=body | {"encoding_format": "bytes_only"})
    assert len(answer.content) == 401 * 2  # vectors of two numbers of a byte


PAIRS = [
    ("/score", {"text_1": "query", "text_2": ["document", "d"]}),
    ("/rerank", {"query": "query", "documents": ["document", "d"]}),
    ("/v2/rerank", {"query": "query", "documents": ["document", "d"], "top_n": 1}),
]


@pytest.mark.parametrize(("path", "body"), PAIRS)
def test_texts_of_a_pair_are_cut(make: Make, path: str, body: dict[str, Any]) -> None:
    """A token is a byte here. A cut text is cut from the right, before special tokens come."""
    for head, wanted in (
        ({}, ["qu", "docu", "d"]),
        ({"head_task": "classify", "labels": ["x"]}, ["qudocu", "qud"]),
    ):
        client, llm = make(**head)
        cut = {"max_tokens_per_query": 2, "max_tokens_per_doc": 4}
        assert client.post(path, json=body | cut).status_code == 200
        assert sorted(_texts(llm)) == sorted(wanted)
        llm.asked.clear()
        none = {"max_tokens_per_query": 0, "max_tokens_per_doc": None}
        assert client.post(path, json=body | none).status_code == 200
        assert "document" in "".join(_texts(llm))
        llm.asked.clear()
        long = {"documents" if "query" in body else "text_2": ["é" * 9000]}
        assert client.post(path, json=body | long | {"max_tokens_per_doc": 5}).status_code == 200
        assert _texts(llm)[-1].endswith("éé") and not _texts(llm)[-1].endswith("ééé")


def _texts(llm: ScriptedLLM) -> list[str]:
    given = [one for one, _ in llm.asked]
    return [one.get("prompt") or bytes(one["prompt_token_ids"]).decode() for one in given]


@pytest.mark.parametrize("name", ["max_tokens_per_query", "max_tokens_per_doc"])
@pytest.mark.parametrize("value", [-1, "limit", 10**30])
def test_a_cut_out_of_range(make: Make, name: str, value: Any) -> None:
    client, llm = make()
    value = llm.max_model_len if value == "limit" else value
    for path, body in PAIRS:
        error = client.post(path, json=body | {name: value}).json()["error"]
        assert (error["param"], llm.asked) == (name, [])
        assert error["message"] == (
            f"{name} must be from 0 to {llm.max_model_len - 1}, got {value}"
        )
