"""What passes over the link beside requests: settings on the way in, answers back."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from jax_engine import AsyncLLM, ConfigError, EngineConfig, PoolingParams
from jax_engine.config.kv_events_config import KVEventsConfig
from jax_engine.config.reasoning_config import ReasoningConfig
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.pooling_params import PoolerConfig, default_pooling
from jax_engine.processes.placement import Place
from jax_engine.serving.engine_process import served
from tests.serving.fields.conftest import SETTINGS
from tests.support.engine_in_thread import in_threads
from tests.support.patience import HANG_S

POOLER = PoolerConfig(pooling_type="MEAN", use_activation=False, dimensions=5, task="embed")
OFF_DEFAULT: dict[str, Any] = {
    "model": "any", "tokenizer": "other", "revision": "main", "tokenizer_revision": "other",
    "download_dir": "/tmp/x", "hf_token": "secret", "hf_overrides": {"rope_theta": 5.0},
    "generation_config": "vllm", "override_generation_config": {"temperature": 0.5},
    "dtype": "bfloat16", "quantization": "w8a8", "seed": 3, "block_size": 32, "max_model_len": 99,
    "max_logprobs": 7, "max_num_seqs": 5, "max_num_batched_tokens": 77,
    "gpu_memory_utilization": 0.3, "kv_cache_memory_bytes": 1 << 20, "kv_cache_dtype": "fp8",
    "num_gpu_blocks_override": 50, "swap_space": 1.5, "preemption_mode": "swap",
    "scheduling": "sosp", "scheduling_policy": "priority", "enable_prefix_caching": False,
    "enable_chunked_prefill": False, "long_prefill_token_threshold": 16, "async_scheduling": False,
    "load_format": "dummy", "config_format": "mistral", "tokenizer_mode": "mistral",
    "logits_processors": ["module:Class"],
    "profiler_config": {"torch_profiler_dir": "x"}, "pooler_config": POOLER, "stream_interval": 4,
    "skip_tokenizer_init": True, "warmup": True, "enforce_eager": True, "trust_remote_code": True,
    "cudagraph_mode": "FULL", "batch_invariant": True, "enable_prompt_embeds": True,
    "tensor_parallel_size": 2, "pipeline_parallel_size": 2, "enable_expert_parallel": True,
    "distributed_executor_backend": "mp",
    "enable_lora": True, "max_loras": 2, "max_lora_rank": 8, "max_cpu_loras": 3,
    "prefix_caching_hash_algo": "sha256_cbor",
    "kv_cache_dir": "/tmp/x", "kv_cache_dir_bytes": 1 << 30,
    "kv_events_config": KVEventsConfig(enable_kv_cache_events=True, endpoint="ipc:///tmp/x"),
    "reasoning_config": ReasoningConfig("mistral", reasoning_end_str="Enough.[/THINK]"),
    "speculative_config": SpeculativeConfig(method="ngram", num_speculative_tokens=3),
}  # fmt: skip
OF_THE_CLIENT = {"data_parallel_size"}  # each engine is one


def test_each_setting_is_that_of_the_engines_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that cannot start has seen its settings."""
    known = {one.name for one in dataclasses.fields(EngineConfig)}
    assert known == OFF_DEFAULT.keys() | OF_THE_CLIENT
    seen: list[EngineConfig] = []

    def build(config: EngineConfig, place: Place) -> None:
        seen.append(config)
        raise ConfigError("enough")

    in_threads(monkeypatch)
    monkeypatch.setattr(LLMEngine, "from_config", build)
    plain = EngineConfig()
    for name, value in OFF_DEFAULT.items():
        with pytest.raises(ConfigError, match="enough"):
            AsyncLLM(**{name: value})
        own = EngineConfig.from_settings(**{name: value})
        assert seen[-1] == served(own), name
        assert getattr(own, name) == value != getattr(plain, name), name


@pytest.mark.parametrize("how", ["settings", "request"])
def test_pooling_defaults_hold_behind_the_link(
    how: str, fields_checkpoint: Path, accepted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pooler_config` counts where a request says nothing, and there alone."""
    in_threads(monkeypatch)
    llm = AsyncLLM(str(fields_checkpoint), pooler_config=POOLER, **SETTINGS)
    given = None if how == "settings" else PoolingParams(task="embed")
    accepted.clear()

    async def read() -> None:
        async for _ in llm.encode("Once", given):
            pass

    asyncio.run(asyncio.wait_for(read(), HANG_S))
    [request] = accepted
    asked = PoolingParams(task="embed", pooling_type="LAST", normalize=True)
    expected = default_pooling(POOLER) if given is None else asked
    assert request.params.pooling == expected
    assert (expected.pooling_type, expected.normalize, expected.dimensions) == (
        ("MEAN", False, 5) if given is None else ("LAST", True, None)
    )
    llm.shutdown()


def test_fields_of_a_pooler_that_are_wrong() -> None:
    assert EngineConfig(pooler_config=vars(POOLER)).pooler_config == POOLER  # type: ignore[arg-type]
    for bad, why in (
        ({"pooling": "MEAN"}, "pooling is not a field of PoolerConfig"),
        ({"dimensions": 0}, "pooler_config: dimensions must be"),
    ):
        with pytest.raises(ConfigError, match=why):
            EngineConfig(pooler_config=bad)  # type: ignore[arg-type]


def names_of(kind: type[Any]) -> list[str]:
    return [one.name for one in dataclasses.fields(kind)]


def test_answers_are_what_the_engine_says_of_itself(
    fields_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = in_threads(monkeypatch)
    llm = AsyncLLM(str(fields_checkpoint), **SETTINGS)
    engine = process().engine

    async def ask() -> tuple[Any, Any, Any]:
        return await llm.get_stats(), await llm.get_metrics(), await llm.get_state()

    stats, metrics, state = asyncio.run(asyncio.wait_for(ask(), HANG_S))
    assert stats == dataclasses.asdict(engine.stats())
    assert metrics == [{"kind": type(one).__name__, **vars(one)} for one in engine.get_metrics()]
    assert state.keys() == set(names_of(type(engine.state())))
    assert llm.max_model_len == engine.max_model_len == SETTINGS["max_model_len"]
    ready = llm._ready
    assert (ready.model, ready.source) == (str(fields_checkpoint), str(engine.model_source))
    assert ready.vocab_size == engine.model_config.vocab_size
    assert (ready.num_gpu_blocks, ready.block_size) == (engine.memory.num_blocks, 16)
    llm.shutdown()
