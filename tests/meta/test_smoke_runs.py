"""The smoke run of each benchmark, in a process of its own: stubs have no shapes to check."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import registry
from benchmarks.compare import checkpoint
from benchmarks.compare.workloads import WORKLOADS, Scale
from benchmarks.curves.benchmark import CURVES
from benchmarks.curves.page import table
from benchmarks.devices import WAYS
from benchmarks.step_profile.parts import PARTS
from scripts.figures.costs import draw_costs
from tests.meta.trees import ROOT

type Results = dict[str, Any]

QUICK = ("padding", "paper")
WITH_SMOLLM2 = (
    "accuracy.quantised", "compare.quantised", "speculation", "speculation.coupling",
    "speculation.draft_model", "speculation.peers",
)  # fmt: skip


def compare(results: Results) -> None:
    found = results["compare_W7_float32"]
    jobs = WORKLOADS["W7"][1](Scale(vocab_size=checkpoint.TINY["vocab_size"], divide=8), 0)
    assert found["output_tokens"] == 4 * sum(job.output_len for job in jobs)
    assert found["peers"]["ours"]["output_tokens_per_s"] > 0
    assert found["peers"]["ours"]["peak_memory_mib"] > 50


def servers(results: Results) -> None:
    (found,) = results.values()
    assert found["W1"]["ours"]["completed"] == 4 and found["W1"]["generate"]["ours_over_this"] > 0
    assert found["open_streams"]["ours"]["completed"] == 40
    beside = found["beside_prompts"]["ours"]
    assert beside["failed"] == 0
    # Both may be 0: a client that had to wait reads all tokens of a short answer together.
    assert beside["longest_itl_ms"] >= beside["median_itl_ms"] >= 0
    assert beside["prompt_ttft_ms"] > 0 and beside["output_throughput"] > 0
    assert found["start"]["ours"]["warm_ready_s"] > 0


def curves(results: Results) -> None:
    found = results["curves"]
    assert set(found) == set(CURVES)
    for curve in found.values():
        assert all(len(line["points"]) >= 2 for line in curve["series"].values())
        assert draw_costs(curve).svg().count("<circle") >= 2 and "| expected |" in table(curve)


def devices(results: Results) -> None:
    assert list(results["devices"]) == ["tiny, float32, W1", "tiny, float32, W2"]
    assert all(set(found) == set(WAYS) for found in results["devices"].values())


def step_profile(results: Results) -> None:
    steps = [one for one in results["step_profile"].values() if isinstance(one, dict)]
    assert len(steps) == 2 and all(set(PARTS) <= set(one["parts"]) for one in steps)


def speculation_host(results: Results) -> None:
    """Steps have as many tokens as there may be."""
    for name, one in results["speculation_host"].items():
        plain = name.startswith("none")
        assert one["tokens_per_step"] == 2 if plain else one["tokens_per_step"] > 4
        assert (one["propose_us"] == 0) == plain and one["total_us"] > one["propose_us"]
        assert one["us_per_token"] == pytest.approx(
            one["total_us"] / one["tokens_per_step"], rel=0.02
        )


def paper_measured(results: Results) -> None:
    found = results["paper"]
    assert list(found) == ["2-measured", "13-measured", "19-measured"]
    assert all(figure["kind"] == "measured" and figure["on"] for figure in found.values())
    tokens, rest = (row["ours"] for row in found["2-measured"]["rows"])
    assert 50 < tokens < tokens + rest <= 100  # per cent of all slots


CHECKS: dict[str, Callable[[Results], None]] = {
    "compare": compare,
    "compare.servers": servers,
    "curves": curves,
    "devices": devices,
    "speculation.host": speculation_host,
    "step_profile": step_profile,
}
ELSEWHERE = {
    "accuracy.lm_eval_backend", "compare.servers.agreement", "compiled_gpu", "several_gpus",
    "vllm_examples", "vllm_tests",
}  # fmt: skip
RUNS = {name: [name] for name in registry.names() if name not in ELSEWHERE}
RUNS["paper, measured"] = ["paper", "--measured", "--figures", "2,13,19"]
CHECKS["paper, measured"] = paper_measured


def _marks(name: str) -> list[pytest.MarkDecorator]:
    slow = [] if name in QUICK else [pytest.mark.slow]
    return [*slow, pytest.mark.model] if name in WITH_SMOLLM2 else slow


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where SmolLM2 is decoded, once for all."""
    return tmp_path_factory.mktemp("peers")


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=_marks(name)) for name in RUNS])
def test_it_runs(name: str, tmp_path: Path, peers: Path, request: pytest.FixtureRequest) -> None:
    if name in WITH_SMOLLM2:
        request.getfixturevalue("smollm2_path")
    command = [sys.executable, "-m", "benchmarks", *RUNS[name], "--smoke", "--output", tmp_path]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_ENGINE_PEERS": str(peers)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
    saved = [json.loads(file.read_text("utf-8")) for file in tmp_path.glob("*.json")]
    results = {one["name"]: one["result"] for one in saved}
    assert results and all(map(math.isfinite, _numbers(results)))
    assert all(one["command"].endswith("--smoke --output OUTPUT") for one in saved)
    CHECKS.get(name, lambda results: None)(results)


def _numbers(result: Any) -> Iterator[float]:
    if isinstance(result, (int, float)):
        yield result
    elif isinstance(result, (dict, list)):
        for value in result.values() if isinstance(result, dict) else result:
            yield from _numbers(value)


def test_what_cannot_run_here_says_why() -> None:
    """Only what needs other programs is left out."""
    assert {name for name in registry.names() if registry.load(name).needs} == ELSEWHERE
