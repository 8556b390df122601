"""The comparison of servers: tables, pairs, and all of it in miniature with our own server."""

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.compare.servers import agreement
from benchmarks.compare.servers import benchmark as servers
from benchmarks.compare.servers.load import shapes_like_w1, w1
from benchmarks.compare.servers.server import Kind, Server, ServerFailed
from benchmarks.compare.workloads import WORKLOADS, Scale


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
