"""The comparison of servers: tables, pairs, and all of it in miniature with our own server."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.compare.servers import __main__ as servers
from benchmarks.compare.servers import agreement, table
from benchmarks.compare.servers.load import shapes_like_w1, w1
from benchmarks.compare.servers.server import KINDS, Kind, Server, ServerFailed
from benchmarks.compare.workloads import WORKLOADS, Scale
from tests.meta.trees import ROOT


def test_requests_are_w1s() -> None:
    jobs = WORKLOADS["W1"][1](Scale(), 1)
    assert [one.output_len for one in w1(Scale(), 3)] == [one.output_len for one in jobs]
    first, again = w1(Scale(), 3), w1(Scale(), 3, 1)
    assert [one.output_len for one in again] == [one.output_len for one in first]
    assert not {tuple(one.prompt) for one in again} & {tuple(one.prompt) for one in first}
    more = shapes_like_w1(200, Scale(), 0)
    lengths = [length for one in more for length in (one.num_prompt, one.output_len)]
    assert (min(lengths), max(lengths)) == (16, 128)
    assert more == shapes_like_w1(200, Scale(), 0) != shapes_like_w1(200, Scale(), 1)


def test_medians_and_worst_cases() -> None:
    rows = [{"output_throughput": x, "failed": x, "health_max_ms": x} for x in (1.0, 9.0, 3.0)]
    found = servers._medians(rows)
    assert found == {"output_throughput": 3.0, "failed": 9.0, "health_max_ms": 9.0}


def test_agreement_is_of_pairs() -> None:
    pairs = {"ours": [(10.0), (40.0), (30.0)], "vllm": [(10.0), (20.0), (20.0)]}
    runs = {name: [{"x": value} for value in values] for name, values in pairs.items()}
    assert agreement._row(runs, "x") == {"ours": 30.0, "vllm": 20.0, "difference_percent": 50.0}


def test_a_server_that_ends_says_why(tmp_path: Path) -> None:
    def command(python: str, settings: dict[str, Any], port: int) -> list[str]:
        return [sys.executable, "-c", "raise SystemExit('no such model')"]

    with pytest.raises(ServerFailed, match=r"status 1: \['no such model'\]"):
        Server(Kind("x", "ours", command), "", {}, tmp_path / "log")


@pytest.mark.slow
def test_all_of_it_in_miniature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "servers_tiny.json"
    command = [sys.executable, "-m", "benchmarks.compare.servers", "--smoke", "--streams", "40"]
    environment = {**os.environ, "JAX_ENGINE_PEERS": str(tmp_path / "peers")}
    command += ["--output", str(path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    content = json.loads(path.read_text("utf-8"))
    result = content["result"]
    assert result["W1"]["ours"]["completed"] == 4 and result["W1"]["generate"]["ours_over_this"] > 0
    assert result["open_streams"]["ours"]["completed"] == 40
    beside = result["beside_prompts"]["ours"]
    assert beside["failed"] == 0
    # Both may be 0: a client that had to wait reads all tokens of a short answer together.
    assert beside["longest_itl_ms"] >= beside["median_itl_ms"] >= 0
    assert beside["prompt_ttft_ms"] > 0 and beside["output_throughput"] > 0
    assert result["start"]["ours"]["warm_ready_s"] > 0
    monkeypatch.setattr(table, "load_results", lambda pattern: [content])
    text = table.tables()
    assert f"| {KINDS['ours'].title} | {table._cell(beside['median_itl_ms'])} |" in text
    assert KINDS["ours"].title in text and "`LLM.generate`" in text and "50 a second" in text
