"""Settings with vLLM's names: honoured, taken silently, taken with a warning, or refused."""

import argparse
import json
import logging
from dataclasses import fields
from typing import get_args

import numpy as np
import pytest

from jax_engine import LLM, ConfigError, EngineArgs, EngineConfig, LLMEngine, SamplingParams
from jax_engine.config.engine_config import CudagraphMode
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.config.vllm_settings import DEFAULTS, REFUSED, SILENT, SPECULATION, WITHOUT_EFFECT
from tests.support.tiny_llama import tiny_llama

SMALL = {"skip_tokenizer_init": True, "block_size": 4, "max_model_len": 16, "max_num_seqs": 2}


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("models") / "tiny")[0])


def test_the_host_keeps_as_many_adapters_as_have_slots_or_as_it_is_told() -> None:
    assert EngineConfig(enable_lora=True, max_loras=3).num_cpu_loras == 3
    assert EngineConfig(enable_lora=True, max_loras=3, max_cpu_loras=5).num_cpu_loras == 5


def test_each_setting_is_in_one_table() -> None:
    own = {one.name for one in fields(EngineConfig)}
    tables = [own, set(SILENT), set(WITHOUT_EFFECT), set(REFUSED), set(SPECULATION)]
    assert sum(map(len, tables)) == len(set().union(*tables))


def test_the_defaults_of_vllm_are_taken_silently(caplog) -> None:
    assert EngineArgs().create_engine_config() == EngineConfig()
    nothing = {"limit_mm_per_prompt": {}, "reasoning_parser": None, "pooler_config": None}
    assert EngineConfig.from_settings(**DEFAULTS, **nothing_new(nothing)) == EngineConfig()
    assert EngineConfig.from_settings(seed=None, block_size=None) == EngineConfig()
    assert not caplog.records


def nothing_new(settings: dict) -> dict:
    return {name: value for name, value in settings.items() if name not in DEFAULTS}


def test_what_has_no_effect_is_named_in_one_warning(caplog) -> None:
    with caplog.at_level(logging.WARNING, "jax_engine"):
        EngineConfig.from_settings(
            compilation_config=3, limit_mm_per_prompt={"image": 1}, disable_log_stats=True
        )
    (record,) = caplog.records
    assert "compilation_config=3, limit_mm_per_prompt={'image': 1}" in record.getMessage()
    assert "disable_log_stats" not in record.getMessage()


def test_short_forms_of_speculation(caplog) -> None:
    """They may be flags too. Beside the whole setting they must say the same."""
    wanted = SpeculativeConfig(method="ngram", num_speculative_tokens=4)
    for given in (
        {"spec_method": "ngram", "spec_tokens": 4},
        {"speculative_model": "[ngram]", "num_speculative_tokens": 4},
        {"spec_tokens": 4, "speculative_config": {"method": "ngram"}},
        {"spec_tokens": 4, "speculative_config": {"num_speculative_tokens": 4}},
        {"spec_tokens": 4, "speculative_config": wanted},
    ):
        config = EngineConfig.from_settings(**given, max_num_seqs=7)
        assert config.max_num_seqs == 7
        found = config.speculative_config
        assert found.method == wanted.method
        assert found.num_speculative_tokens == wanted.num_speculative_tokens
    parser = EngineArgs.add_cli_args(argparse.ArgumentParser())
    args = parser.parse_args(["--spec-method", "ngram", "--spec-tokens", "4"])
    assert EngineArgs.from_cli_args(args).create_engine_config().speculative_config == wanted
    assert not caplog.records
    problem = "spec_tokens and speculative_config's num_speculative_tokens must be the same, got 3"
    with pytest.raises(ConfigError, match=problem):
        EngineConfig.from_settings(spec_tokens=3, speculative_config={"num_speculative_tokens": 4})


@pytest.mark.parametrize("mode", get_args(CudagraphMode))
def test_the_mode_of_cuda_graphs_is_taken_from_where_vllm_has_it(mode, caplog) -> None:
    for given in (mode, mode.lower()):
        args = EngineArgs(compilation_config={"cudagraph_mode": given})
        assert args.create_engine_config() == EngineConfig(cudagraph_mode=mode)
    assert not caplog.records
    parser = EngineArgs.add_cli_args(argparse.ArgumentParser())
    text = json.dumps({"cudagraph_mode": mode})
    for line in (["--compilation-config", text], ["--cudagraph-mode", mode]):
        args = EngineArgs.from_cli_args(parser.parse_args(line))
        assert args.create_engine_config().cudagraph_mode == mode


def test_what_is_no_mode_of_cuda_graphs_is_refused_and_the_rest_has_no_effect(caplog) -> None:
    assert EngineConfig(cudagraph_mode=None).cudagraph_mode == "PIECEWISE"
    with pytest.raises(ConfigError, match=r"cudagraph_mode must be .*'FULL'.*, got 'EAGER'"):
        EngineConfig.from_settings(compilation_config={"cudagraph_mode": "EAGER"})
    with caplog.at_level(logging.WARNING, "jax_engine"):
        EngineConfig.from_settings(compilation_config={"cudagraph_mode": "FULL", "level": 3})
    (record,) = caplog.records
    assert "compilation_config={'level': 3}" in record.getMessage()


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_missing_is_refused_with_the_reason(name) -> None:
    taken, reason = REFUSED[name]
    for value in taken:
        assert EngineConfig.from_settings(**{name: value}) == EngineConfig()
    with pytest.raises(ConfigError, match=f"{name} must be ") as error:
        EngineConfig.from_settings(**{name: "something else"})
    assert reason in str(error.value)


BAD = [
    ({"block_size": 0}, "block_size"),
    ({"scheduling": "fifo"}, "unified"),
    ({"scheduling": "sosp", "enable_prefix_caching": True}, "enable_prefix_caching"),
    ({"tensor_parallel_size": 0}, "tensor_parallel_size"),
    ({"seed": "x"}, "seed must be an integer, got 'x'"),
    ({"seed": 1.5}, "seed must be an integer, got 1.5"),
    ({"seed": -1}, "seed must be in"),
    ({"gpu_memory_utilization": "0.5"}, "must be a number or None, got '0.5'"),
    ({"gpu_memory_utilization": 1.5}, r"must be in \(0, 1\], got 1.5"),
    ({"swap_space": float("nan")}, "swap_space must be in"),
    ({"max_model_len": 0}, "max_model_len must be at least 1, got 0"),
    ({"dtype": "float8"}, "dtype must be one of 'auto', .*, got 'float8'"),
    ({"kv_cache_dtype": "fp8_e5m2"}, "must be one of 'auto', 'fp8', .*got 'fp8_e5m2"),
    ({"kv_cache_dtype": "fp8_inc"}, "kv_cache_dtype must be one of .*'fp8_e4m3', 'int8', got"),
    ({"kv_cache_dtype": 8}, "kv_cache_dtype must be one of 'auto', .*, got 8"),
    ({"enable_prefix_caching": 1}, "enable_prefix_caching must be True or False or None, got 1"),
    ({"hf_overrides": 3}, "hf_overrides must be a dict or callables or None, got 3"),
    ({"max_logprobs": -2}, "max_logprobs must be at least -1, got -2"),
    ({"stream_interval": 0}, "stream_interval must be at least 1, got 0"),
    ({"max_modl_len": 3}, "did you mean max_model_len"),
]


@pytest.mark.parametrize(("settings", "words"), BAD)
def test_each_bad_setting_is_named_with_what_is_expected(settings, words) -> None:
    with pytest.raises(ConfigError, match=words):
        EngineConfig.from_settings(**settings)


def test_numpy_s_numbers_are_numbers() -> None:
    config = EngineConfig(max_model_len=np.int64(7), swap_space=np.float32(0.5), warmup=np.True_)
    assert (config.max_model_len, config.swap_space, config.warmup) == (7, 0.5, True)
    assert type(config.max_model_len) is int and config.warmup is True


def test_engine_args_make_engines(path) -> None:
    args = EngineArgs(path, **SMALL, num_gpu_blocks_override=8, quantization=None)
    args.max_model_len = 12
    for engine in (LLMEngine.from_engine_args(args), LLM.from_engine_args(args).llm_engine):
        assert engine.max_model_len == 12
        assert engine.stats().num_blocks == 8


def test_engine_args_from_a_command_line() -> None:
    parser = EngineArgs.add_cli_args(argparse.ArgumentParser())
    words = "--model m --max-model-len 64 --no-warmup --enable-prefix-caching --swap-space 0.5 "
    words += "--kv-cache-dtype fp8"
    parsed = parser.parse_args([*words.split(), "--hf-overrides", '{"rope_theta": 1}'])
    config = EngineArgs.from_cli_args(parsed).create_engine_config()
    assert config == EngineConfig(
        model="m", max_model_len=64, warmup=False, enable_prefix_caching=True, swap_space=0.5,
        hf_overrides={"rope_theta": 1}, kv_cache_dtype="fp8",
    )  # fmt: skip
    assert EngineArgs.from_cli_args(parser.parse_args([])) == EngineArgs()


@pytest.mark.slow
def test_the_kv_cache_has_the_bytes_that_are_given(path) -> None:
    one = LLM(path, **SMALL, num_gpu_blocks_override=5).llm_engine
    bytes_a_block = one.worker.kv_cache.array.nbytes // 5
    given = LLM(path, **SMALL, kv_cache_memory_bytes=6 * bytes_a_block + 1).llm_engine
    assert given.stats().num_blocks == 6


def test_config_json_is_overridden(path) -> None:
    with pytest.raises(ConfigError, match=r"max_model_len must be .* 8 positions"):
        LLM(path, **SMALL, hf_overrides={"max_position_embeddings": 8})

    def shorter(config: dict) -> dict:
        return config | {"max_position_embeddings": 10}

    with pytest.raises(ConfigError, match=r"max_model_len must be .* 10 positions"):
        LLM(path, **SMALL, hf_overrides=shorter)
    with pytest.raises(ConfigError, match="hf_overrides must return the dict"):
        LLM(path, **SMALL, hf_overrides=lambda config: None)
    with pytest.raises(ConfigError, match="hf_overrides raised ZeroDivisionError"):
        LLM(path, **SMALL, hf_overrides=lambda config: 1 / 0)


@pytest.mark.slow
def test_default_sampling_params(tmp_path) -> None:
    path, _ = tiny_llama(tmp_path / "tiny")
    file = path / "generation_config.json"
    file.write_text('{"temperature": 0.25, "top_k": 5, "max_new_tokens": 3, "do_sample": true}')
    llm = LLM(str(path), **SMALL, num_gpu_blocks_override=8)
    wanted = SamplingParams(temperature=0.25, top_k=5, max_tokens=3)
    assert llm.get_default_sampling_params() == wanted
    (output,) = llm.generate([[4, 5]], use_tqdm=False)
    assert len(output.outputs[0].token_ids) <= 3

    plain = LLM(str(path), **SMALL, num_gpu_blocks_override=8, generation_config="vllm")
    assert plain.get_default_sampling_params() == SamplingParams()
    changed = LLM(
        str(tmp_path / "tiny"), **SMALL, num_gpu_blocks_override=8,
        override_generation_config={"temperature": 2.0}, generation_config=str(path),
    )  # fmt: skip
    assert changed.get_default_sampling_params().temperature == 2.0


@pytest.mark.slow
def test_ends_that_another_folder_suggests(tmp_path) -> None:
    """A request stops at them, as at the model's own."""
    path, _ = tiny_llama(tmp_path / "tiny")
    greedy = SamplingParams(temperature=0.0, max_tokens=4)
    llm = LLM(str(path), **SMALL, num_gpu_blocks_override=8)
    (output,) = llm.generate([[4, 5]], greedy, use_tqdm=False)
    second = output.outputs[0].token_ids[1]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "generation_config.json").write_text(json.dumps({"eos_token_id": second}))
    llm = LLM(
        str(path), **SMALL, num_gpu_blocks_override=8, generation_config=str(tmp_path / "other")
    )
    (output,) = llm.generate([[4, 5]], greedy, use_tqdm=False)
    assert output.outputs[0].finish_reason == "stop"
    assert output.outputs[0].token_ids[-1] == second
