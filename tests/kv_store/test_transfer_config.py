"""`kv_transfer_config` with vLLM's ExampleConnector is `kv_cache_dir`; all else is refused."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from jax_engine import LLM, ConfigError, SamplingParams
from jax_engine.config.engine_args import EngineArgs
from jax_engine.config.engine_config import EngineConfig, own_settings
from jax_engine.config.kv_transfer_config import KVTransferConfig
from tests.support import tiny_llama as tiny


def given(folder: object, **changes: Any) -> dict[str, Any]:
    extra = {"shared_storage_path": folder}
    wanted = {"kv_connector": "ExampleConnector", "kv_role": "kv_both"}
    return wanted | {"kv_connector_extra_config": extra} | changes


@pytest.mark.parametrize(
    "config",
    [
        given("kv"),
        KVTransferConfig(**given("kv")),
        given("kv", kv_load_failure_policy="recompute", engine_id="a"),
    ],
    ids=["dict", "class", "all fields"],
)
def test_the_folder_is_kv_cache_dir(config: Any) -> None:
    wanted = EngineConfig(kv_cache_dir="kv")
    assert EngineConfig.from_settings(kv_transfer_config=config) == wanted
    assert EngineConfig.from_settings(kv_transfer_config=config, kv_cache_dir="kv") == wanted
    own = own_settings({"kv_transfer_config": config})
    assert own == {"kv_cache_dir": "kv"}  # what other processes are handed


def test_as_a_flag() -> None:
    parser = EngineArgs.add_cli_args(argparse.ArgumentParser())
    args = parser.parse_args(["--kv-transfer-config", json.dumps(given("kv"))])
    assert EngineArgs.from_cli_args(args).create_engine_config().kv_cache_dir == "kv"


@pytest.mark.parametrize("config", [None, {}, {"kv_connector": None}, {"engine_id": "a"}])
def test_without_a_connector_blocks_stay_in_the_engine(config: Any) -> None:
    assert EngineConfig.from_settings(kv_transfer_config=config) == EngineConfig()
    config = KVTransferConfig(kv_role="kv_consumer")
    assert EngineConfig.from_settings(kv_transfer_config=config) == EngineConfig()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (given("kv", kv_connector="NixlConnector"), "kv_connector must be 'ExampleConnector', got"),
        (given("kv", kv_role="kv_producer"), "kv_role must be 'kv_both', got 'kv_producer'"),
        (given("kv", kv_role=None), "kv_role must be 'kv_both', got None"),
        (given("kv", kv_load_failure_policy="fail"), "kv_load_failure_policy must be 'recompute'"),
        (given("kv", kv_connector_module_path="m"), "'kv_connector_module_path' is no key of it"),
        (given("kv", kv_conector="m"), r"'kv_conector' is no key of it here.*kv_connector"),
        (given("kv", engine_id=7), "engine_id must be"),
        (given(None), "must name a folder as 'shared_storage_path', got None"),
        (given(""), "must name a folder as 'shared_storage_path', got ''"),
        (given("kv", kv_connector_extra_config={}), "must name a folder"),
        (
            given("kv", kv_connector_extra_config={"shared_storage_path": "kv", "more": 1}),
            "kv_connector_extra_config has 'more'; known: 'shared_storage_path'",
        ),
    ],
)
def test_what_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=f"kv_transfer_config: .*{words}"):
        EngineConfig.from_settings(kv_transfer_config=config)


def test_two_folders_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="must be the same, got 'a' and 'b'"):
        EngineConfig.from_settings(kv_transfer_config=given("a"), kv_cache_dir="b")


def test_another_engine_reads_the_blocks(tmp_path: Path) -> None:
    """As in vLLM's example: one engine computes the prompt, another one goes on."""
    model = tiny.byte_llama(tmp_path / "model", max_position_embeddings=128)
    prompt, found = "Hi " * 20, []
    for length in (1, 4):
        llm = LLM(str(model), kv_transfer_config=given(str(tmp_path / "kv")), max_num_seqs=2)
        params = SamplingParams(temperature=0, max_tokens=length)
        (output,) = llm.generate(prompt, params, use_tqdm=False)
        found.append((output.num_cached_tokens, output.outputs[0].token_ids))
        assert llm.llm_engine._stored is not None
        llm.llm_engine._stored.store.close()
    (before, first), (after, tokens) = found
    assert before == 0 and after >= 32
    assert list(tokens[:1]) == list(first)
