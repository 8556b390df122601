"""save_sharded_state: what is loaded from it computes the same."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jax_engine import LLM, ConfigError, SamplingParams
from jax_engine.engine import vllm_parts
from jax_engine.engine.vllm_parts import save_state
from jax_engine.models.checkpoints.files_source import FilesSource
from tests.support.tiny_llama import tiny_llama

SETTINGS: dict[str, Any] = {"num_gpu_blocks_override": 50, "skip_tokenizer_init": True}
GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)


@pytest.mark.slow
def test_the_same_tokens_from_what_was_saved(tmp_path: Path) -> None:
    path, _ = tiny_llama(tmp_path / "tiny")
    llm = LLM(str(path), **SETTINGS)
    saved = tmp_path / "saved"
    saved.mkdir()
    llm.llm_engine.engine_core.save_sharded_state(path=str(saved), pattern=None, max_size=4000)
    shutil.copy(path / "config.json", saved)
    files = sorted(saved.glob("*.safetensors"))
    assert len(files) > 1 and files[0].name == "model-rank-0-part-0.safetensors"
    assert sum(len(load_file(file)) for file in files) == len(load_file(path / "model.safetensors"))
    again = LLM(str(saved), load_format="sharded_state", **SETTINGS)
    outputs = [one.generate([[3, 4, 5]], GREEDY, use_tqdm=False)[0] for one in (llm, again)]
    assert outputs[0].outputs[0].token_ids == outputs[1].outputs[0].token_ids


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    path, _ = tiny_llama(tmp_path / "tiny")
    engine = LLM(str(path), **SETTINGS).llm_engine
    with pytest.raises(ConfigError, match="folder that exists"):
        engine.save_sharded_state(str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="pattern must have"):
        engine.save_sharded_state(str(tmp_path), pattern="all.safetensors")
    dummy = LLM(str(path), load_format="dummy", **SETTINGS).llm_engine
    with pytest.raises(ConfigError, match="dummy"):
        dummy.save_sharded_state(str(tmp_path))


@pytest.fixture
def tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three tensors of 16, 8 and 8 bytes; no model has to be around them."""
    monkeypatch.setattr(vllm_parts, "tensor_source", FilesSource)
    sizes = {"a": 4, "b": 2, "c": 2}
    source = tmp_path / "source"
    source.mkdir()
    save_file(
        {name: np.arange(size, dtype=np.float32) for name, size in sizes.items()},
        source / "model.safetensors",
    )
    return source


@pytest.mark.parametrize(
    ("max_size", "parts"),
    [
        (None, ["abc"]),
        (32, ["abc"]),
        (31, ["ab", "c"]),
        (16, ["a", "bc"]),
        (15, ["a", "b", "c"]),
        (1, ["a", "b", "c"]),
    ],
)
def test_files_hold_as_many_bytes_as_they_may(
    tensors: Path, tmp_path: Path, max_size: int | None, parts: list[str]
) -> None:
    """A tensor that is too large by itself is the exception. No file is empty."""
    written = save_state(tensors, tmp_path, "float32", "{rank}-{pp_rank}-{part}", max_size)
    assert [one.name for one in written] == [f"0-0-{i}" for i in range(len(parts))]
    found = [load_file(one) for one in written]
    assert ["".join(sorted(one)) for one in found] == parts
    assert found[0]["a"].tolist() == [0, 1, 2, 3]


def test_a_pattern_must_tell_the_parts_apart(tensors: Path, tmp_path: Path) -> None:
    for pattern in ("all", "{rank}-{pp_rank}"):
        with pytest.raises(ConfigError, match=r"pattern must have \{part\} in it"):
            save_state(tensors, tmp_path, "float32", pattern, None)
