"""Encoders behind the server: embeddings, scores of pairs, classes; and no completion."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from jax_engine import LLM
from tests.support.app_in_threads import app_in_threads
from tests.support.tiny_encoders import CLS, SEP, save_pair_tokenizer, tiny_encoder, with_scores

SETTINGS: dict[str, Any] = {"dtype": "float32", "max_model_len": 40, "max_num_seqs": 4}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, LLM]]:
    """A client of a cross-encoder's server, and an `LLM` of the same."""
    folder: Path = tmp_path_factory.mktemp("models") / "reranker"
    tiny_encoder(folder)
    save_pair_tokenizer(folder)
    with_scores(folder, labels=1)
    with app_in_threads(str(folder), **SETTINGS) as client:
        yield client, LLM(str(folder), **SETTINGS)


def asked(client: TestClient, path: str, **body: Any) -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_server_says_what_llm_says(pair: tuple[TestClient, LLM]) -> None:
    client, llm = pair
    texts = ["ab", "c", "ddd"]
    answer = asked(client, "/v1/embeddings", input=texts)
    expected = [one.outputs.embedding for one in llm.embed(texts, use_tqdm=False)]
    found = [one["embedding"] for one in answer["data"]]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    scores = [one.outputs.score for one in llm.score("ab", texts, use_tqdm=False)]
    answer = asked(client, "/score", text_1="ab", text_2=texts)
    np.testing.assert_allclose([one["score"] for one in answer["data"]], scores, atol=1e-6)
    ranked = asked(client, "/v1/rerank", query="ab", documents=texts)["results"]
    assert [one["index"] for one in ranked] == np.argsort([-one for one in scores]).tolist()
    classes = asked(client, "/classify", input=texts)["data"]
    expected = [one.outputs.probs for one in llm.classify(texts, use_tqdm=False)]
    np.testing.assert_allclose([one["probs"] for one in classes], expected, atol=1e-6)


def test_a_text_that_is_cut_keeps_its_special_tokens(pair: tuple[TestClient, LLM]) -> None:
    """The first one's state may be the embedding; in a pair the types are cut with the tokens."""
    client, llm = pair
    cut = {"truncate_prompt_tokens": 5}
    body = {"input": "abcdefgh", "truncate_prompt_tokens": 5}
    for side, text in (("left", "fgh"), ("right", "abc")):
        answer = asked(client, "/v1/embeddings", **body, truncation_side=side)
        (expected,) = llm.embed([text], use_tqdm=False)
        np.testing.assert_allclose(
            answer["data"][0]["embedding"], expected.outputs.embedding, atol=1e-6
        )
    (offline,) = llm.embed(["abcdefgh"], tokenization_kwargs=cut, use_tqdm=False)
    assert offline.prompt_token_ids == [CLS, 8, 9, 10, SEP]
    answer = asked(client, "/score", text_1="abcdef", text_2="b" * 9, truncate_prompt_tokens=8)
    ids, types = [CLS, *[4] * 6, SEP], [0, *[1] * 7]
    prompt = {"prompt_token_ids": ids, "token_type_ids": types}
    (expected,) = llm.classify([prompt], use_tqdm=False)
    assert answer["data"][0]["score"] == pytest.approx(expected.outputs.probs[0], abs=1e-6)
    long = {"truncate_prompt_tokens": 8}
    (offline,) = llm.score("abcdef", "b" * 9, tokenization_kwargs=long, use_tqdm=False)
    assert offline.prompt_token_ids == ids
    assert offline.outputs.score == pytest.approx(expected.outputs.probs[0], abs=1e-6)


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/completions", {"prompt": "ab"}, "generate needs a model that generates text"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "ab"}]},
            "chat template|generate",
        ),
        ("/v1/embeddings", {"input": "a" * 39}, "40"),
        ("/v1/embeddings", {"input": [200]}, "200"),
        ("/score", {"text_1": "a" * 20, "text_2": "b" * 20}, "40"),
    ],
)
def test_what_is_refused(
    path: str, body: dict[str, Any], words: str, pair: tuple[TestClient, LLM]
) -> None:
    answer = pair[0].post(path, json=body)
    assert answer.status_code == 400, answer.text
    assert re.search(words, answer.json()["error"]["message"])
