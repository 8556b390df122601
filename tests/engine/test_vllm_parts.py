"""The profile's folder, vllm_config, and logits processors given by class."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jax_engine import LLM, SamplingParams
from jax_engine.config.engine_config import (
    DEFAULT_PROFILE_FOLDER,
    PROFILE_VARIABLE,
    ProfilerConfig,
    profile_folder,
)
from jax_engine.engine.vllm_parts import AdapterLogitsProcessor, vllm_config
from tests.support.tiny_llama import tiny_llama

SETTINGS: dict[str, Any] = {
    "num_gpu_blocks_override": 50,
    "block_size": 4,
    "skip_tokenizer_init": True,
}
GREEDY = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True)


class Only(AdapterLogitsProcessor):
    """Draws the token that `extra_args` names, for requests that have it."""

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> Any:
        token = (params.extra_args or {}).get("token")
        if token is None:
            return None

        def only(output: list[int], logits: Any) -> Any:
            kept = float(logits[token])
            logits[:] = -float("inf")
            logits[token] = kept
            return logits

        return only


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("models") / "tiny")[0])


def test_the_folder_of_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROFILE_VARIABLE, raising=False)
    assert profile_folder(None) == profile_folder(ProfilerConfig()) == DEFAULT_PROFILE_FOLDER
    monkeypatch.setenv(PROFILE_VARIABLE, "variable")
    assert profile_folder(None) == "variable"
    assert profile_folder(ProfilerConfig(torch_profiler_dir="given")) == "given"
    assert profile_folder({"profiler": "torch", "torch_profiler_dir": "a"}) == "a"


@pytest.mark.slow
def test_a_profile_is_written_where_the_setting_says(path: str, tmp_path: Path) -> None:
    llm = LLM(path, profiler_config={"torch_profiler_dir": str(tmp_path)}, **SETTINGS)
    llm.start_profile()
    llm.generate([[3]], GREEDY, use_tqdm=False)
    llm.stop_profile()
    assert list(tmp_path.rglob("*.xplane.pb"))


def test_what_programs_read_of_vllm_s_configuration(path: str) -> None:
    config = LLM(path, max_model_len=16, **SETTINGS).llm_engine.vllm_config
    assert config.model_config.max_model_len == 16
    assert config.model_config.hf_config.hidden_size == 20
    assert config.cache_config.num_gpu_blocks == 50


@pytest.mark.slow
def test_classes_of_logits_processors(path: str) -> None:
    llm = LLM(path, logits_processors=[Only], **SETTINGS)
    forced = SamplingParams(temperature=0.0, max_tokens=5, extra_args={"token": 7}, logprobs=0)
    outputs = llm.generate([[3, 4], [3, 4]], [forced, GREEDY], use_tqdm=False)
    (plain,) = LLM(path, **SETTINGS).generate([[3, 4]], GREEDY, use_tqdm=False)
    assert outputs[0].outputs[0].token_ids == [7] * 5
    assert outputs[1].outputs[0].token_ids == plain.outputs[0].token_ids
    assert np.isfinite(outputs[0].outputs[0].cumulative_logprob)


@pytest.mark.parametrize(("given", "read"), [(None, "model"), ("other", "other")])
def test_the_tokenizer_is_the_model_s_unless_it_has_a_name(given: str | None, read: str) -> None:
    config = SimpleNamespace(
        speculative_config=None,
        model="model", tokenizer=given, dtype="auto", seed=0, hf_overrides=None, block_size=16,
        prefix_caching=True, max_num_seqs=4,
    )  # fmt: skip
    engine: Any = SimpleNamespace(
        config=config,
        model_config=SimpleNamespace(vocab_size=3, hidden_size=4),
        max_model_len=9,
        memory=SimpleNamespace(num_blocks=7),
        scheduler=SimpleNamespace(max_num_batched_tokens=8),
        head=None,
        model_source=Path("a file.gguf"),
    )
    found = vllm_config(engine)
    assert (found.model_config.model, found.model_config.tokenizer) == ("model", read)
    assert vars(found.model_config.hf_config) == {"id2label": {}}
