"""Heads made of tokens' rows: `classifier_from_token`, as Qwen3-Reranker's users give it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jax_engine import LLM, ConfigError, PoolingParams
from jax_engine.models.model_loader import open_model
from jax_engine.models.token_head import token_rows
from tests.support.heads import WIDTH
from tests.support.tiny_llama import byte_llama

SETTINGS: dict[str, Any] = {
    "num_gpu_blocks_override": 60,
    "block_size": 4,
    "max_num_seqs": 4,
}
HEAD = {"architectures": ["LlamaForSequenceClassification"]}
PAIR = {**HEAD, "classifier_from_token": ["n", "y"], "is_original_qwen3_reranker": True}
PROMPTS = [[3, 4, 5, 6, 7], [12], [13, 14, 15]]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_llama(tmp_path_factory.mktemp("models") / "plain")


def head_of(path: Path, overrides: dict[str, Any]) -> np.ndarray:
    head = open_model(str(path), hf_overrides=overrides).abstract.head
    assert head is not None and not head.bias.any()
    return head.weight


def rows_of(path: Path) -> np.ndarray:
    """The output matrix [V, E]."""
    found = load_file(path / "model.safetensors")
    matrix: np.ndarray = found.get("lm_head.weight", found["model.embed_tokens.weight"])
    return matrix


@pytest.mark.slow
def test_scores_are_those_of_the_logits(plain: Path) -> None:
    """The share of the second token, were there no other than the two."""
    text, head = LLM(str(plain), **SETTINGS), LLM(str(plain), hf_overrides=PAIR, **SETTINGS)
    raw = PoolingParams(normalize=False)
    states = text.encode(PROMPTS, raw, pooling_task="embed", use_tqdm=False)
    no, yes = (text.get_tokenizer().convert_tokens_to_ids(token) for token in "ny")
    for state, output in zip(states, head.classify(PROMPTS, use_tqdm=False), strict=True):
        logits = rows_of(plain)[[no, yes]] @ state.outputs.data
        (share,) = output.outputs.probs
        assert share == pytest.approx(1 / (1 + np.exp(logits[0] - logits[1])), abs=1e-5)
    (score,) = head.score("ab", "cd", use_tqdm=False)
    (joined,) = head.classify("abcd", use_tqdm=False)
    assert score.outputs.score == joined.outputs.probs[0]


@pytest.mark.parametrize("tied", [False, True])
def test_rows_are_of_the_matrix_that_gives_logits(tied: bool, plain: Path, tmp_path: Path) -> None:
    path = byte_llama(tmp_path / "model", tie_word_embeddings=tied)
    tensors = load_file(path / "model.safetensors")
    # A tied checkpoint may store it once more, and then the embedding counts.
    tensors.setdefault("lm_head.weight", np.zeros_like(tensors["model.embed_tokens.weight"]))
    save_file(tensors, path / "model.safetensors")
    matrix = tensors["model.embed_tokens.weight" if tied else "lm_head.weight"]
    each = {**HEAD, "classifier_from_token": [5, 9, 7], "method": "no_post_processing"}
    np.testing.assert_array_equal(head_of(path, each), matrix[[5, 9, 7]])
    two = {**HEAD, "classifier_from_token": [5, 9], "method": "from_2_way_softmax"}
    np.testing.assert_array_equal(head_of(path, two), matrix[[9]] - matrix[[5]])


def test_labels_are_the_tokens(plain: Path) -> None:
    def labels(overrides: dict[str, Any]) -> tuple[str, ...]:
        head = open_model(str(plain), hf_overrides=overrides).abstract.config.head
        assert head is not None
        return head.labels

    assert labels(PAIR) == ("y",)
    three = {**HEAD, "classifier_from_token": ["a", "b", 7], "method": "no_post_processing"}
    assert labels(three) == ("a", "b", "7")
    assert head_of(plain, three).shape == (3, WIDTH)


@pytest.mark.parametrize(("fields", "why"), [
    ({"classifier_from_token": ["n"], "is_original_qwen3_reranker": True}, "two tokens"),
    ({"is_original_qwen3_reranker": True}, "two tokens"),
    ({"method": "no_post_processing"}, "one token or several"),
    ({"classifier_from_token": ["n", "ny"], "method": "from_2_way_softmax"}, "got 'ny'"),
    ({"classifier_from_token": [-1], "method": "no_post_processing"}, "got -1"),
    ({"classifier_from_token": [10**6], "method": "no_post_processing"}, "got 1000000"),
    ({"classifier_from_token": "no", "method": "no_post_processing"}, "classifier_from_token"),
    ({"classifier_from_token": [7], "method": "softmax"}, "method"),
])  # fmt: skip
def test_what_is_no_head_is_refused(fields: dict[str, Any], why: str, plain: Path) -> None:
    with pytest.raises(ConfigError, match=why):
        open_model(str(plain), hf_overrides={**HEAD, **fields})


def test_an_output_matrix_must_be_one_tensor() -> None:
    fields = {"classifier_from_token": [5], "method": "no_post_processing"}
    with pytest.raises(ConfigError, match="one tensor of the checkpoint"):
        token_rows(fields, None)
    assert token_rows({}, None) is None


def test_tokens_need_a_vocabulary(plain: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((plain / name).read_bytes())
    with pytest.raises(ConfigError, match=r"no tokenizer\.json"):
        open_model(str(tmp_path), hf_overrides=PAIR)
    by_id = {**PAIR, "classifier_from_token": [5, 9]}
    assert head_of(tmp_path, by_id).shape == (1, WIDTH)
