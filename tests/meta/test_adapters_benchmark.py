"""Benchmarks of adapters: their files are adapters of the model, and each pass has new tokens."""

import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from benchmarks import report
from benchmarks.adapters import cost, files, peers
from benchmarks.adapters.cold import first_tokens
from benchmarks.adapters.table import cold_table
from benchmarks.compare.checkpoint import TINY

HEAD = {
    "date": "2026-11-28 10:12 UTC",
    "machine": {"cpu": "a CPU", "cores": 2, "memory_gib": 8.0, "system": "Linux", "devices": []},
}


@pytest.mark.slow
def test_every_row_has_its_adapter_and_all_run(tmp_path: Path) -> None:
    model = files.model_folder(tmp_path / "model", TINY)
    engines = cost.Engines(model, "float32", "dummy", 4, tmp_path / "adapters")
    assert engines.seconds(cost.WITH, 4, seed=0, output=2) > 0
    held = engines.llms[cost.WITH].llm_engine.list_loras()
    assert held == set() and len(engines.adapters) == cost.ADAPTERS
    found = cost.ratios(engines, 2, 1)
    assert set(found) == {
        "tokens_per_s_without", "adapters_over_without", "enabled_over_not", "rounds",
        "numbers_over_weights",
    }  # fmt: skip
    stored = load_file(tmp_path / "adapters" / "adapter-0" / "adapter_model.safetensors")
    whole = sum(outputs * inputs for outputs, inputs in files.shapes(TINY).values())
    weights = TINY["num_hidden_layers"] * whole + TINY["vocab_size"] * TINY["hidden_size"]
    low = cost.ADAPTERS * sum(array.size for array in stored.values())
    assert engines.numbers_over_weights == low / weights


@pytest.mark.slow
def test_each_cold_adapter_is_another(tmp_path: Path) -> None:
    model = files.model_folder(tmp_path / "model", TINY)
    adapters = files.write_adapters(tmp_path / "adapters", TINY, 3)
    assert len({(one / "adapter_model.safetensors").read_bytes() for one in adapters}) == 3
    settings = {
        "model": str(model), "load_format": "dummy", "max_model_len": 32, "dtype": "float32",
        "skip_tokenizer_init": True, "num_gpu_blocks_override": 16,
    }  # fmt: skip
    found = first_tokens(settings, adapters, TINY["vocab_size"])
    assert all(found[name] > 0 for name in ("cold_ms", "warm_ms", "reading_ms"))
    assert found["adapters"] == 2


def test_the_same_lengths_and_other_tokens_in_each_pass() -> None:
    one, other = (peers.jobs(1000, seed, 4, adapted=True) for seed in (1, 2))
    assert [len(job.prompt) for job in one] == [len(job.prompt) for job in other]
    assert all(a.prompt != b.prompt for a, b in zip(one, other, strict=True))
    assert {job.adapter for job in one} == set(range(1, peers.ADAPTERS + 1))
    assert {job.adapter for job in peers.jobs(1000, 1, 4, adapted=False)} == {0}


def test_what_adapters_add_to_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    first = {name: 1.5 for name in ("adapter_mib", "first_adapter_ms", "cold_ms", "warm_ms")}
    start = {"without": {"first_token_s": 3.0}, "enable_lora": {"first_token_s": 3.25}}
    result = {"first token": first | {"reading_ms": 2.5}, "start": start}
    (tmp_path / "adapters_cold.json").write_text(json.dumps(HEAD | {"result": result}), "utf-8")
    assert cold_table().splitlines()[-1] == "| `enable_lora` adds to a start | 250 |"
