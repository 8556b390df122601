"""`/score`, `/rerank` and `/pooling` of a model that reads a query and its documents together."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from jax_engine import LLM
from tests.support.app_in_threads import app_in_threads
from tests.support.tiny_ranker import tiny_ranker

SETTINGS: dict[str, Any] = {
    "dtype": "float32", "block_size": 16, "max_num_seqs": 4, "num_gpu_blocks_override": 200,
    "max_model_len": 1100,
}  # fmt: skip
DOCUMENTS = ["A part of the cache.", "é", "B", "C"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, LLM]]:
    path = str(tiny_ranker(tmp_path_factory.mktemp("models") / "ranker"))
    with app_in_threads(path, **SETTINGS) as client:
        yield client, LLM(path, **SETTINGS)


def asked(client: TestClient, path: str, **body: Any) -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.slow
def test_all_say_what_llm_says(pair: tuple[TestClient, LLM]) -> None:
    client, llm = pair
    offline = llm.score("What?", DOCUMENTS, use_tqdm=False)
    scores = [one.outputs.score for one in offline]
    answer = asked(client, "/v1/score", text_1="What?", text_2=DOCUMENTS)
    np.testing.assert_allclose([one["score"] for one in answer["data"]], scores, atol=1e-5)
    assert answer["usage"]["prompt_tokens"] == len(offline[0].prompt_token_ids)
    order = np.argsort(scores)[::-1].tolist()
    for path in ("/v1/rerank", "/invocations"):
        ranked = asked(client, path, query="What?", documents=DOCUMENTS)["results"]
        assert [one["index"] for one in ranked] == order
        found = [one["relevance_score"] for one in ranked]
        np.testing.assert_allclose(found, np.sort(scores)[::-1], atol=1e-5)
    (vectors,) = llm.encode([*DOCUMENTS, "What?"], use_tqdm=False)
    for task in (None, "token_embed"):
        answer = asked(client, "/pooling", input=[*DOCUMENTS, "What?"], task=task)
        (item,) = answer["data"]
        np.testing.assert_allclose(item["data"], vectors.outputs.data, atol=1e-4)
    each = asked(client, "/score", text_1=["a", "b"], text_2=["c", "d"])["data"]
    alone = [llm.score(*one, use_tqdm=False)[0].outputs.score for one in ("ac", "bd")]
    np.testing.assert_allclose([one["score"] for one in each], alone, atol=1e-5)
    cut = asked(client, "/score", text_1="abc", text_2=["cde"], max_tokens_per_doc=1)["data"]
    (expected,) = llm.score("abc", "c", use_tqdm=False)
    assert cut[0]["score"] == pytest.approx(expected.outputs.score, abs=1e-5)


LONG = ["b" * 300] * 3
CUT = {"truncate_prompt_tokens": 120}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        ("/pooling", {"input": "one"}, "at least 2 texts together"),
        ("/pooling", {"input": [[1, 2], "a"]}, "must be text for a model that ranks documents"),
        ("/pooling", {"messages": [{"role": "user", "content": "a"}]}, "messages must not be"),
        ("/pooling", {"input": ["a", "b"], "task": "embed"}, "embed needs another model"),
        ("/v1/embeddings", {"input": "a"}, "embed needs another model"),
        ("/classify", {"input": "a"}, "classify needs another model"),
        ("/v1/completions", {"prompt": "a"}, "generate needs another model"),
        ("/score", {"text_1": "a", "text_2": []}, "must hold 1 to 2048 texts, got 0"),
        ("/score", {"text_1": ["a", "b"], "text_2": ["c"]}, "1 text or as many"),
        ("/rerank", {"query": "a", "documents": LONG}, "tokens"),
        ("/score", {"text_1": "a", "text_2": LONG[:2], **CUT}, "keep its 2 documents"),
    ],
)
def test_what_is_wrong_is_named(
    pair: tuple[TestClient, LLM], path: str, body: dict[str, Any], why: str
) -> None:
    answer = pair[0].post(path, json=body)
    assert answer.status_code == 400, answer.text
    assert why in answer.json()["error"]["message"]
