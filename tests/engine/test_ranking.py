"""`LLM.score` and `LLM.encode` of a model that reads a query and its documents as one prompt."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from jax_engine import LLM, InvalidRequestError, PoolingParams, RequestTooLargeError
from jax_engine.engine.pooling.ranking import Ranked, prompts_of
from jax_engine.models.families.jina_ranking import DOCUMENT, QUERY, ranking_prompt
from tests.golden.families import rankings
from tests.support.tiny_ranker import as_language_model, tiny_ranker

CASE = "ranking_all"  # its vectors are longer than the projector is wide
SETTINGS: dict[str, Any] = {
    "dtype": "float32", "block_size": 16, "max_num_seqs": 4, "num_gpu_blocks_override": 200,
    "max_model_len": 1100, "max_num_batched_tokens": 512,
}  # fmt: skip
QUERY_TEXT = "What is a block?"
DOCUMENTS = ["A part of the cache.", "é", "", f"a{DOCUMENT}b{QUERY}"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_ranker(tmp_path_factory.mktemp("models") / "ranker", CASE)


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    return LLM(str(folder), **SETTINGS)


@pytest.fixture(scope="module")
def plain(folder: Path) -> LLM:
    """The same decoder as a language model."""
    return LLM(str(as_language_model(folder, folder.parent / "plain")), **SETTINGS)


def vectors(folder: Path, plain: LLM, query: str, documents: list[str]) -> np.ndarray:
    """By the states of the decoder, and NumPy."""
    raw = PoolingParams(normalize=False)
    text = ranking_prompt(query, documents)
    (output,) = plain.encode(text, raw, pooling_task="token_embed", use_tqdm=False)
    ids = np.array(output.prompt_token_ids)
    places = [np.flatnonzero(ids == one) for one in (rankings.DOCUMENT, rankings.QUERY)]
    states = output.outputs.data[np.concatenate(places)]
    tensors = load_file(folder / "model.safetensors")
    hidden = np.maximum(states @ tensors["projector.0.weight"].T, 0)
    found: np.ndarray = hidden @ tensors["projector.2.weight"].T
    return found


def cosines(rows: np.ndarray) -> np.ndarray:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    found: np.ndarray = unit[:-1] @ unit[-1]
    return found


@pytest.mark.parametrize("count", [1, len(DOCUMENTS)])
def test_vectors_and_scores_are_those_of_the_states_behind_the_texts(
    folder: Path, llm: LLM, plain: LLM, count: int
) -> None:
    documents = DOCUMENTS[:count]
    expected = vectors(folder, plain, QUERY_TEXT, documents)
    assert expected.shape == (count + 1, 33)
    (output,) = llm.encode([*documents, QUERY_TEXT], pooling_task="token_embed", use_tqdm=False)
    np.testing.assert_allclose(output.outputs.data, expected, atol=1e-4)
    (unasked,) = llm.encode([*documents, QUERY_TEXT], use_tqdm=False)
    np.testing.assert_array_equal(unasked.outputs.data, output.outputs.data)
    scores = llm.score(QUERY_TEXT, documents, use_tqdm=False)
    found = [one.outputs.score for one in scores]
    np.testing.assert_allclose(found, cosines(expected), atol=1e-4)
    assert all(one.prompt_token_ids == output.prompt_token_ids for one in scores)
    assert all(one.finished for one in scores)


def test_a_query_for_each_document_is_a_prompt_for_each(llm: LLM) -> None:
    queries, documents = ["a", "b"], ["c", "d"]
    found = llm.score(queries, documents, use_tqdm=False)
    for query, document, one in zip(queries, documents, found, strict=True):
        (alone,) = llm.score(query, document, use_tqdm=False)
        assert one.outputs.score == pytest.approx(alone.outputs.score, abs=1e-6)
    assert llm.score("a", [], use_tqdm=False) == llm.score([], [], use_tqdm=False) == []


def test_vectors_of_length_1_are_for_who_asks(llm: LLM) -> None:
    texts = ["a", "b"]
    (plain,) = llm.encode(texts, use_tqdm=False)
    (scaled,) = llm.encode(texts, PoolingParams(normalize=True), use_tqdm=False)
    lengths = np.linalg.norm(plain.outputs.data, axis=1, keepdims=True)
    assert (np.abs(lengths - 1) > 0.1).all()
    np.testing.assert_allclose(scaled.outputs.data, plain.outputs.data / lengths, rtol=1e-5)


def test_a_cut_that_keeps_the_documents_changes_what_is_before_them(llm: LLM) -> None:
    (whole,) = llm.score("a", "b", use_tqdm=False)
    kept = {"truncate_prompt_tokens": 200}
    (cut,) = llm.score("a", "b", tokenization_kwargs=kept, use_tqdm=False)
    assert cut.prompt_token_ids == whole.prompt_token_ids[-200:]
    assert cut.outputs.score != whole.outputs.score


BOTH = "at least 2 texts together, documents and behind them the query, got"


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (lambda llm: llm.encode("one text"), f"{BOTH} 1"),
        (lambda llm: llm.encode(["one text"]), f"{BOTH} 1"),
        (lambda llm: llm.encode([]), f"{BOTH} 0"),
        (lambda llm: llm.encode([1, 2, 3]), f"{BOTH} 1"),
        (lambda llm: llm.encode([[1], "a"]), r"prompts\[0\] must be text .* got \[1\]"),
        (lambda llm: llm.encode(["a", {"prompt": "b"}]), r"prompts\[1\] must be text"),
        (lambda llm: llm.encode(["a", "\ud800"]), "valid Unicode"),
        (lambda llm: llm.score([[1]], "a"), "data_1 must be text"),
        (lambda llm: llm.score("a", [["b"]]), "data_2 must be text"),
        (lambda llm: llm.score(["a", "b"], "c"), "as many as data_2"),
        (lambda llm: llm.score("a", "b", chat_template="x"), "chat_template needs"),
        (lambda llm: llm.encode(["a", "b"], PoolingParams(dimensions=4)), "dimensions must be"),
        (lambda llm: llm.encode(["a", "b"], pooling_task="embed"), "embed needs another model"),
        (lambda llm: llm.encode(["a", "b"], PoolingParams(task="embed")), "task must be|another"),
        (lambda llm: llm.embed("a"), "embed needs another model, got one that ranks documents"),
        (lambda llm: llm.classify("a"), "classify needs another model"),
        (lambda llm: llm.generate("a"), "generate needs another model"),
        (
            lambda llm: llm.score(
                "a", ["b", "c"], tokenization_kwargs={"truncate_prompt_tokens": 110}
            ),
            r"documents \(2\) and the query when it is cut, got 1 and 1 of them in 110 tokens",
        ),
        (
            lambda llm: llm.encode(
                ["a", "b"], tokenization_kwargs={"truncation": True, "max_length": 9}
            ),
            r"documents \(1\) and the query when it is cut, got 0 and 0 of them in 9 tokens",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(llm: LLM, run: Any, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        run(llm)
    assert not llm.llm_engine.has_unfinished_requests()


def test_documents_that_do_not_fit_together_are_refused_with_both_numbers(llm: LLM) -> None:
    for documents in (["b" * 500], ["b" * 100] * 6, ["b" * 5000]):
        with pytest.raises(RequestTooLargeError, match=r"\d+ tokens.*1100"):
            llm.score("a", documents, use_tqdm=False)
        with pytest.raises(RequestTooLargeError, match=r"\d+ tokens.*1100"):
            llm.encode([*documents, "a"], use_tqdm=False)


class Noting:
    """A tokenizer that notes the texts: all have one document."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.backend = SimpleNamespace(token_to_id=[DOCUMENT, QUERY].index)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        self.texts.append(text)
        return [2, 0, 1][not add_special_tokens :]


class Characters:
    """The bound of an engine whose tokens are a character each, at most."""

    def __init__(self, most: int) -> None:
        self.most = most

    def check(self, text: str, room: int = 1) -> None:
        if len(text) > self.most - room:
            raise RequestTooLargeError("too long")


@pytest.mark.parametrize(
    ("room", "options", "is_read"),
    [
        (-1, {}, False),
        (-1, {"add_special_tokens": False}, False),
        (-1, {"truncate_prompt_tokens": 999}, True),
        (-1, {"truncation": True, "max_length": 999}, True),
        (0, {}, True),  # nothing is written behind it
        (None, {}, True),
    ],
)
def test_a_text_that_cannot_fit_is_not_tokenised_unless_it_is_cut(
    room: int | None, options: dict[str, Any], is_read: bool
) -> None:
    one, tokenizer = Ranked("a", ["b"]), Noting()
    bound = None if room is None else Characters(len(one.text) + room)
    engine: Any = SimpleNamespace(tokenizer=tokenizer, text_length=bound)
    if is_read:
        [prompt] = prompts_of(engine, [one], options)
        assert prompt == {"prompt": one.text, "prompt_token_ids": [2, 0, 1]}
    else:
        with pytest.raises(RequestTooLargeError):
            prompts_of(engine, [one], options)
    assert tokenizer.texts == [one.text] * is_read


def test_texts_need_a_tokenizer(folder: Path) -> None:
    llm = LLM(str(folder), skip_tokenizer_init=True, **SETTINGS)
    with pytest.raises(InvalidRequestError, match="needs a tokenizer"):
        llm.score("a", "b")
