"""Rerankers of a query and its documents: vectors as in PyTorch; and what is refused of files."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jax_engine import LLM, ConfigError, PoolingParams, WeightsError
from jax_engine.models.registry import config_from_hf
from tests.golden.families.rankings import DOCUMENT, PROMPT, QUERY, cases, goldens
from tests.support.byte_tokenizer import save_byte_tokenizer
from tests.support.in_process import run
from tests.support.tiny_ranker import tiny_ranker

CASES, GOLDENS = cases(), goldens()
TOLERANCE = 1e-4  # relative to the largest number
SETTINGS: dict[str, Any] = {
    "dtype": "float32", "block_size": 4, "max_num_seqs": 3, "num_gpu_blocks_override": 60,
    "max_model_len": 64,
}  # fmt: skip


def vectors(llm: LLM) -> np.ndarray:
    """Those of the prompt of the goldens, which is no text."""
    llm.llm_engine.add_request("a", PROMPT, PoolingParams())
    (output,) = run(llm.llm_engine)
    data: np.ndarray = output.outputs.data
    return data


@pytest.mark.parametrize("name", CASES)
def test_vectors_are_those_of_pytorch(name: str, tmp_path: Path) -> None:
    """A prompt in chunks, between which its states are kept."""
    path = str(tiny_ranker(tmp_path / "model", name))
    found = vectors(LLM(path, max_num_batched_tokens=11, **SETTINGS))
    expected = GOLDENS[name]
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < TOLERANCE * np.abs(expected).max()


def test_fields_that_published_files_leave_out() -> None:
    """A vector has 512 numbers; the tokens are those of Qwen's larger vocabulary."""
    raw = {k: v for k, v in CASES["ranking"]["config"].items() if k != "embedding_size"}
    head = config_from_hf(raw).head
    assert head is not None and head.ranking is not None and head.ranking.size == 512
    assert head.ranking.ids == (151670, 151671)


def test_tokens_are_found_in_the_vocabulary_or_have_their_published_ids(tmp_path: Path) -> None:
    llm = LLM(str(tiny_ranker(tmp_path / "own")), load_format="dummy", **SETTINGS)
    head = llm.llm_engine.head
    assert head is not None and head.reads == (DOCUMENT, QUERY)
    bare = tiny_ranker(tmp_path / "published", vocab_size=151672)
    (bare / "tokenizer.json").unlink()
    given = SETTINGS | {"skip_tokenizer_init": True, "load_format": "dummy"}
    head = LLM(str(bare), **given).llm_engine.head
    assert head is not None and head.reads == (151670, 151671)


@pytest.mark.parametrize("has_others", [False, True])
def test_a_vocabulary_without_these_tokens(has_others: bool, tmp_path: Path) -> None:
    path = tiny_ranker(tmp_path / "model")
    (path / "tokenizer.json").unlink()
    if has_others:
        save_byte_tokenizer(path)
    found = "[None, None]" if has_others else "[151670, 151671]"
    words = f"<|embed_token|> and <|rerank_token|> below 259, .* got {found}"
    with pytest.raises(ConfigError, match=re.escape(words).replace(r"\.\*", ".*")):
        LLM(str(path), skip_tokenizer_init=True, **SETTINGS)


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("projector.0.weight", None, "no tensor projector.0.weight"),
        ("projector.2.weight", None, "no tensor projector.2.weight"),
        ("projector.0.weight", (10, 22), r"expected shape \(11, 22\)"),
        ("projector.2.weight", (7, 12), r"expected shape \(7, 11\)"),
    ],
)
def test_a_projector_that_is_not_there_or_of_another_shape(
    name: str, shape: tuple[int, ...] | None, words: str, tmp_path: Path
) -> None:
    path = tiny_ranker(tmp_path / "model")
    tensors = load_file(path / "model.safetensors")
    del tensors[name]
    if shape is not None:
        tensors[name] = np.zeros(shape, np.float32)
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(WeightsError, match=words):
        LLM(str(path), **SETTINGS)


def test_a_vector_of_no_numbers_is_refused(tmp_path: Path) -> None:
    path = tiny_ranker(tmp_path / "model")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"embedding_size": 0}))
    with pytest.raises(ConfigError, match="embedding_size"):
        LLM(str(path), **SETTINGS)
