"""save_sharded_state: what is loaded from it computes the same."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from jax_engine import LLM, ConfigError, SamplingParams
from tests.support.tiny_llama import tiny_llama

SETTINGS: dict[str, Any] = {"num_gpu_blocks_override": 50, "skip_tokenizer_init": True}
GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)


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
