"""Classes, rewards and rerankers: a head over the hidden states, which `embed` gives too."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jax_engine import LLM, ConfigError, InvalidRequestError, PoolingParams, WeightsError
from jax_engine.config.engine_config import EngineConfig
from jax_engine.models.pooling_heads import probabilities
from jax_engine.pooling_params import PoolerConfig
from tests.support.heads import WIDTH, with_head
from tests.support.tiny_llama import byte_llama

SETTINGS: dict[str, Any] = {
    "num_gpu_blocks_override": 60,
    "block_size": 4,
    "max_num_batched_tokens": 6,
    "max_num_seqs": 4,
}
PROMPTS = [[3, 4, 5, 6, 7, 8, 9, 10, 11], [12], [13, 14, 15]]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_llama(tmp_path_factory.mktemp("models") / "plain")


def weight(folder: Path) -> np.ndarray:
    found: np.ndarray = load_file(folder / "model.safetensors")["score.weight"]
    return found


@pytest.fixture(scope="module")
def models(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("heads")
    bias = {"score.bias": [0.5, -1.0, 2.0]}
    return {
        "plain": plain,
        "classes": with_head(
            plain, folder / "classes", kind="SequenceClassification", labels=3, **bias
        ),
        "reward": with_head(plain, folder / "reward", kind="SequenceClassification", labels=1),
        "tokens": with_head(plain, folder / "tokens", kind="TokenClassification", labels=4),
    }


@pytest.fixture(scope="module")
def llms(models: dict[str, Path]) -> dict[str, LLM]:
    return {name: LLM(str(path), **SETTINGS) for name, path in models.items()}


def hidden(llms: dict[str, LLM], task: Any) -> list[np.ndarray]:
    """What the decoder without a head gives."""
    raw = PoolingParams(normalize=False)
    outputs = llms["plain"].encode(PROMPTS, raw, pooling_task=task, use_tqdm=False)
    return [one.outputs.data for one in outputs]


def softmax(logits: np.ndarray) -> np.ndarray:
    shares: np.ndarray = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    return shares


@pytest.mark.slow
def test_classes(llms: dict[str, LLM], models: dict[str, Path]) -> None:
    outputs = llms["classes"].classify(PROMPTS, use_tqdm=False)
    for output, states in zip(outputs, hidden(llms, "embed"), strict=True):
        expected = softmax(states @ weight(models["classes"]).T + [0.5, -1.0, 2.0])
        assert output.outputs.num_classes == 3
        np.testing.assert_allclose(output.outputs.probs, expected, atol=1e-5)


@pytest.mark.slow
def test_raw_scores_and_what_a_model_does_unasked(
    llms: dict[str, LLM], models: dict[str, Path]
) -> None:
    raw = PoolingParams(use_activation=False)
    outputs = llms["reward"].encode(PROMPTS, raw, use_tqdm=False)
    for output, states in zip(outputs, hidden(llms, "embed"), strict=True):
        expected = states @ weight(models["reward"]).T
        np.testing.assert_allclose(output.outputs.data, expected, atol=1e-4)


def test_scores_of_each_token(llms: dict[str, LLM], models: dict[str, Path]) -> None:
    outputs = llms["tokens"].encode(PROMPTS, pooling_task="token_classify", use_tqdm=False)
    for output, states in zip(outputs, hidden(llms, "token_embed"), strict=True):
        expected = softmax(states @ weight(models["tokens"]).T)
        assert output.outputs.data.shape == (len(output.prompt_token_ids), 4)
        np.testing.assert_allclose(output.outputs.data, expected, atol=1e-5)


def test_a_reranker_reads_both_texts(llms: dict[str, LLM]) -> None:
    llm = llms["reward"]
    template = "{{ messages[0]['content'] }}?{{ messages[1]['content'] }}"
    plain = llm.score("ab", ["cd", "e"], use_tqdm=False)
    templated = llm.score("ab", ["cd"], chat_template=template, use_tqdm=False)
    expected = llm.classify(["abcd", "abe", "ab?cd"], use_tqdm=False)
    assert [one.outputs.score for one in plain + templated] == [
        one.outputs.probs[0] for one in expected
    ]
    tokens = llm.score([[5, 6]], [[7]], use_tqdm=False)
    assert tokens[0].prompt_token_ids == [5, 6, 7]


def test_late_interaction_compares_tokens(models: dict[str, Path]) -> None:
    pooler = PoolerConfig(task="token_embed")
    llm = LLM(str(models["plain"]), pooler_config=pooler, **SETTINGS)
    first, second = llm.encode(["abc", "bd"], use_tqdm=False)
    assert first.outputs.data.shape == (3, WIDTH)
    expected = (first.outputs.data @ second.outputs.data.T).max(axis=1).sum()
    (score,) = llm.score("abc", "bd", use_tqdm=False)
    assert score.outputs.score == pytest.approx(expected, abs=1e-5)


def test_a_pooler_config_may_be_its_fields() -> None:
    given = {"task": "embed", "dimensions": 4}
    assert EngineConfig(pooler_config=given).pooler_config == PoolerConfig(**given)
    with pytest.raises(ConfigError, match=r"pooling_typ is not a field.*pooling_type"):
        EngineConfig(pooler_config={"pooling_typ": "MEAN"})
    with pytest.raises(ConfigError, match="pooler_config: pooling_type must be"):
        EngineConfig(pooler_config={"pooling_type": "AVERAGE"})


@pytest.mark.parametrize(
    ("name", "run", "words"),
    [
        (
            "plain",
            lambda llm: llm.classify("a"),
            "classify needs a model with a classification head",
        ),
        ("plain", lambda llm: llm.score("a", "b", chat_template="x"), "chat_template needs"),
        ("tokens", lambda llm: llm.classify("a"), "got one with a head for token_classify"),
        ("classes", lambda llm: llm.generate("a"), "generate needs a model that generates"),
        ("classes", lambda llm: llm.score("a", "b"), "a head for 1 score, got 3"),
        ("reward", lambda llm: llm.score(["a", "b"], "c"), "as many as data_2"),
        ("reward", lambda llm: llm.score([[1]], ["c"], chat_template="x"), "needs two texts"),
        ("plain", lambda llm: llm.embed("a", PoolingParams(dimensions=4)), "must be None"),
        ("classes", lambda llm: llm.llm_engine.add_request("a", "b"), "generate needs"),
    ],
)
def test_what_a_model_cannot_do_is_said(
    llms: dict[str, LLM], name: str, run: Any, words: str
) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        run(llms[name])
    assert not llms[name].llm_engine.has_unfinished_requests()


def test_embeddings_are_cut_where_the_model_was_trained_for_it(models: dict[str, Path]) -> None:
    path = str(models["plain"])
    any_width = LLM(path, hf_overrides={"is_matryoshka": True}, **SETTINGS)
    whole = np.array(any_width.embed("abc", use_tqdm=False)[0].outputs.embedding)
    (cut,) = any_width.embed("abc", PoolingParams(dimensions=8), use_tqdm=False)
    np.testing.assert_allclose(cut.outputs.embedding, whole[:8] / np.linalg.norm(whole[:8]))
    with pytest.raises(InvalidRequestError, match="at most 20"):
        any_width.embed("abc", PoolingParams(dimensions=21))
    listed = LLM(path, hf_overrides={"matryoshka_dimensions": [4, 8]}, **SETTINGS)
    assert len(listed.embed("a", PoolingParams(dimensions=4))[0].outputs.embedding) == 4
    with pytest.raises(InvalidRequestError, match="one of 4, 8"):
        listed.embed("abc", PoolingParams(dimensions=5))


def test_dummy_weights_have_a_head_too(models: dict[str, Path]) -> None:
    llm = LLM(str(models["classes"]), load_format="dummy", **SETTINGS)
    assert len(llm.classify("abc", use_tqdm=False)[0].outputs.probs) == 3


def test_a_head_that_is_not_there_or_of_another_shape(
    models: dict[str, Path], tmp_path: Path
) -> None:
    for name, change, words in [
        ("missing", None, "there is no tensor score.weight"),
        ("wrong", np.zeros((2, WIDTH), np.float32), r"expected shape \(3, 20\)"),
    ]:
        folder = tmp_path / name
        folder.mkdir()
        tensors = load_file(models["classes"] / "model.safetensors")
        tensors.pop("score.weight")
        if change is not None:
            tensors["score.weight"] = change
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text((models["classes"] / "config.json").read_text())
        with pytest.raises(WeightsError, match=words):
            LLM(str(folder), skip_tokenizer_init=True, **SETTINGS)


def test_labels_that_are_none(models: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match="num_labels"):
        LLM(str(models["classes"]), hf_overrides={"num_labels": 10**9}, **SETTINGS)


def test_a_single_score_is_a_sigmoid_and_several_a_softmax() -> None:
    logits = np.array([[-1.5], [0.0], [0.7]], np.float32)
    np.testing.assert_allclose(probabilities(logits), 1 / (1 + np.exp(-logits)), rtol=1e-6)
    pair = np.array([[0.3, -0.9]], np.float32)
    weights = np.exp(pair)
    np.testing.assert_allclose(probabilities(pair), weights / weights.sum(), rtol=1e-6)
