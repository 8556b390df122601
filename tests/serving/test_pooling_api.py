"""`/pooling`, `/classify`, `/score` and `/rerank` say what `LLM` says; `/ping` and `/load`."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from jax_engine import LLM
from tests.support.app_in_threads import app_in_threads
from tests.support.heads import with_head
from tests.support.scripted_app import Make

TEXTS = ["Once", "The capital of", "é"]
SETTINGS: dict[str, Any] = {"block_size": 4, "max_model_len": 64, "num_gpu_blocks_override": 60}
SCORE = ("/score", "/v1/score")
RERANK = ("/rerank", "/v1/rerank", "/v2/rerank")


@pytest.fixture(scope="module")
def models(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("heads")
    kind = "SequenceClassification"
    return {
        "plain": checkpoint,
        "classes": with_head(checkpoint, folder / "classes", kind=kind, labels=3),
        "reranker": with_head(checkpoint, folder / "reranker", kind=kind, labels=1),
    }


@pytest.fixture(scope="module", params=["plain", "classes", "reranker"])
def pair(request: Any, models: dict[str, Path]) -> Iterator[tuple[str, TestClient, LLM]]:
    """The kind of a model, a client of its server, and an `LLM` of it."""
    path = str(models[request.param])
    with app_in_threads(path, **SETTINGS) as client:
        yield request.param, client, LLM(path, **SETTINGS)


def asked(client: TestClient, path: str, **body: Any) -> dict[str, Any]:
    answer = client.post(path, json={"model": "tiny"} | body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def refusal(client: TestClient, path: str, **body: Any) -> str:
    answer = client.post(path, json=body)
    assert answer.status_code == 400, answer.text
    message: str = answer.json()["error"]["message"]
    return message


def near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_all_say_what_llm_says(pair: tuple[str, TestClient, LLM]) -> None:
    _pooling(*pair)
    _classes(*pair)
    _scores(*pair)


def _pooling(kind: str, client: TestClient, llm: LLM) -> None:
    for task in (None, "embed", "token_embed"):
        offline = llm.encode(TEXTS, pooling_task=task, use_tqdm=False)  # type: ignore[arg-type]
        answer = asked(client, "/pooling", input=TEXTS, task=task)
        assert answer["object"] == "list" and answer["id"].startswith("pooling-")
        assert answer["usage"]["prompt_tokens"] == sum(len(o.prompt_token_ids) for o in offline)
        for i, (one, output) in enumerate(zip(answer["data"], offline, strict=True)):
            assert (one["index"], one["object"]) == (i, "pooling")
            near(one["data"], output.outputs.data)
    coded = asked(client, "/pooling", input=TEXTS[0], encoding_format="base64", task="embed")
    data = np.frombuffer(base64.b64decode(coded["data"][0]["data"]), "<f4")
    near(data, llm.embed(TEXTS[0], use_tqdm=False)[0].outputs.embedding)
    last = asked(client, "/pooling", input="xyz", truncate_prompt_tokens=1, task="embed")
    near(last["data"][0]["data"], llm.embed("z", use_tqdm=False)[0].outputs.embedding)


def _classes(kind: str, client: TestClient, llm: LLM) -> None:
    if kind == "plain":
        assert "needs a model with a classification head" in refusal(client, "/classify", input="x")
        return
    offline = llm.classify(TEXTS, use_tqdm=False)
    answer = asked(client, "/classify", input=TEXTS)
    for one, output in zip(answer["data"], offline, strict=True):
        near(one["probs"], output.outputs.probs)
        best = int(np.argmax(output.outputs.probs))
        assert one["label"] == f"label {best}"
        assert one["num_classes"] == output.outputs.num_classes
    raw = asked(client, "/classify", input=TEXTS[0], activation=False)["data"][0]["probs"]
    same = asked(client, "/pooling", input=TEXTS[0], task="classify", use_activation=False)
    near(raw, same["data"][0]["data"])
    assert abs(np.sum(raw) - np.sum(answer["data"][0]["probs"])) > 1e-3


def _scores(kind: str, client: TestClient, llm: LLM) -> None:
    if kind == "classes":
        message = refusal(client, "/score", text_1="x", text_2="y")
        assert "a head for 1 score, got 3: use /classify" in message
        return
    for left in (TEXTS[1], TEXTS[::-1]):
        offline = [one.outputs.score for one in llm.score(left, TEXTS, use_tqdm=False)]
        for path in SCORE:
            answer = asked(client, path, text_1=left, text_2=TEXTS)
            near([one["score"] for one in answer["data"]], offline)
            assert [one["index"] for one in answer["data"]] == [0, 1, 2]
    offline = [one.outputs.score for one in llm.score(TEXTS[1], TEXTS, use_tqdm=False)]
    order = np.argsort(offline)[::-1].tolist()
    for path in RERANK:
        answer = asked(client, path, query=TEXTS[1], documents=TEXTS)
        assert [one["index"] for one in answer["results"]] == order
        near([one["relevance_score"] for one in answer["results"]], np.sort(offline)[::-1])
        assert [one["document"]["text"] for one in answer["results"]] == [TEXTS[i] for i in order]
        assert answer["usage"]["total_tokens"] > 0 and answer["id"].startswith("rerank-")
    best = asked(client, RERANK[0], query=TEXTS[1], documents=TEXTS, top_n=1)["results"]
    assert [one["index"] for one in best] == order[:1]


@pytest.mark.slow
def test_vectors_of_length_1_or_not(models: dict[str, Path]) -> None:
    """The server's setting, which reaches the engine, and what a request says of it."""
    path, settings = str(models["plain"]), SETTINGS | {"pooler_config": {"use_activation": False}}
    (plain,) = LLM(path, **settings).embed(TEXTS[1], use_tqdm=False)
    length = np.linalg.norm(plain.outputs.embedding)
    assert not 0.9 < length < 1.1
    with app_in_threads(path, **settings) as client:
        for given, factor in ((None, 1), (False, 1), (True, length)):
            more = {} if given is None else {"use_activation": given}
            answer = asked(client, "/v1/embeddings", input=TEXTS[1], **more)
            near(np.multiply(answer["data"][0]["embedding"], factor), plain.outputs.embedding)


@pytest.mark.parametrize(
    ("path", "body", "param", "why"),
    [
        ("/pooling", {"input": []}, "input", "must be a string"),
        ("/pooling", {"input": "x", "task": "sum"}, "task", "'embed'"),
        ("/classify", {"input": ["x"] * 2049}, "input", "at most 2048 prompts, got 2049"),
        ("/rerank", {"query": "a", "documents": ["b"] * 2049}, "documents", "got 2049"),
        ("/rerank", {"query": "a", "documents": ["b"], "top_n": -1}, "top_n", "at least 0"),
        ("/rerank", {"query": ["a"], "documents": ["b"]}, "query", "string"),
        ("/rerank", {"query": "a", "documents": ["b" * 5000]}, None, "the prompt has 5000 tokens"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(
    make: Make, path: str, body: dict[str, Any], param: str | None, why: str
) -> None:
    client, llm = make()
    answer = client.post(path, json=body)
    error = answer.json()["error"]
    assert answer.status_code == 400 and why in error["message"] and error["param"] == param, error
    assert not llm.asked


@pytest.mark.parametrize(("keep", "kept"), [(1, 1), (2, 2), (4095, 100), (-1, 100)])
def test_as_much_of_a_text_is_kept_as_is_asked_for(make: Make, keep: int, kept: int) -> None:
    """The last tokens, down to one; other counts are refused by all that cut."""
    text = "ab" * 50
    for path, texts in (
        ("/v1/embeddings", {"input": text}),
        ("/pooling", {"input": text}),
        ("/rerank", {"query": text, "documents": [text]}),
        ("/score", {"text_1": text, "text_2": text}),
    ):
        client, llm = make()
        answer = client.post(path, json=texts | {"truncate_prompt_tokens": keep})
        assert answer.status_code == 200, answer.text
        asked = [prompt["prompt_token_ids"] for prompt, _ in llm.asked]
        assert asked and all(ids == [*text.encode()][-kept:] for ids in asked)
        for wrong in (0, -2):
            client, llm = make()
            answer = client.post(path, json=texts | {"truncate_prompt_tokens": wrong})
            said = f"truncate_prompt_tokens must be at least 1, or -1, got {wrong}"
            assert answer.status_code == 400 and said in answer.text and not llm.asked


def test_each_text_is_computed_once(make: Make) -> None:
    client, llm = make()
    documents = ["b", "cd"]
    client.post("/rerank", json={"query": "a", "documents": documents, "request_id": "mine"})
    assert [one["prompt"] for one, _ in llm.asked] == ["a", "b", "cd"]
    assert all(params.task == "embed" for _, params in llm.asked)
    assert llm.request_ids[0] == "rerank-mine/0#0"


def test_ping_load_and_docs(make: Make) -> None:
    client, llm = make({"api_keys": ("one",)})
    for method in ("GET", "POST"):
        assert client.request(method, "/ping").status_code == 200
    assert client.get("/docs").headers["content-type"].startswith("text/html")
    assert "/v1/rerank" in client.get("/openapi.json").json()["paths"]
    assert client.get("/load").status_code == 401
    llm.num_unfinished_requests = 7
    answer = client.get("/load", headers={"Authorization": "Bearer one"})
    assert answer.json() == {"server_load": 7}
    llm.errored = True
    assert client.post("/ping").status_code == 503
