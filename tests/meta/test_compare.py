"""The comparison's own parts, without a peer: workloads, metrics, tables, protocol, our engine."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import registry
from benchmarks.compare import bounds, checkpoint, passes, quantised, quiet, session, table
from benchmarks.compare.benchmark import BENCHMARK
from benchmarks.compare.environments import OURS, PEERS
from benchmarks.compare.metrics import agreement, figures, medians, ratio
from benchmarks.compare.passes import MAX_REPEATS, Runs, requests_of, take_turns
from benchmarks.compare.quantised_peers import LLAMAS
from benchmarks.compare.quantised_peers import PEERS as Q
from benchmarks.compare.session import SCRIPTS, PeerFailed, Session
from benchmarks.compare.workloads import WORKLOADS, Job, Scale
from jax_engine.models.registry import config_from_hf
from tests.models.llama_cpp import write_gguf_file


@pytest.mark.parametrize("name", WORKLOADS)
def test_passes_have_the_same_lengths_and_new_tokens(name: str) -> None:
    first, second = (WORKLOADS[name][1](Scale(), seed) for seed in (1, 2))
    assert [(len(a.prompt), a.output_len, a.arrival_s) for a in first] == [
        (len(a.prompt), a.output_len, a.arrival_s) for a in second
    ]
    assert all(a.prompt != b.prompt for a, b in zip(first, second, strict=True))
    assert first == WORKLOADS[name][1](Scale(), 1)
    assert all(len(job.prompt) + job.output_len <= 4608 for job in first)


def test_workloads_are_what_they_are_called() -> None:
    made = {name: WORKLOADS[name][1](Scale(), 1) for name in WORKLOADS}
    assert {name: len(jobs) for name, jobs in made.items()} == dict(
        W1=32, W2=1, W3=64, W4=64, W5=32, W6=1, W7=16
    )
    assert (len(made["W6"][0].prompt), made["W6"][0].output_len) == (4096, 256)
    assert len({tuple(job.prompt[:1000]) for job in made["W5"]}) == 1
    assert len({tuple(job.prompt[:1016]) for job in made["W5"]}) == 32
    assert {job.n for job in made["W7"]} == {4}
    assert max(job.arrival_s for job in made["W3"]) == 0 < made["W4"][0].arrival_s
    assert [len(a.prompt) for a in made["W3"]] == [len(a.prompt) for a in made["W4"]]


def test_no_pass_has_the_first_block_of_another() -> None:
    kinds = [(name, turn, attempt) for name in WORKLOADS for turn in (0, 1) for attempt in (0, 1)]
    made = [requests_of(name, Scale(), turn, attempt) for name, turn, attempt in kinds]
    first = [{tuple(one.prompt[:16]) for one in jobs if len(one.prompt) >= 16} for jobs in made]
    assert len(set.union(*first)) == sum(map(len, first))


def _turns(monkeypatch: Any, busy: str) -> tuple[dict[str, Runs], dict[str, list[list[Job]]]]:
    """Two rounds of two peers, others being busy during those of some; and what each was asked."""
    asked: dict[str, list[list[Job]]] = {"a": [], "b": []}

    def one_pass(peer: Any, jobs: list[Job]) -> tuple[dict[str, Any], float]:
        asked[peer].append(jobs)
        rows = [(0.5, 1.0, jobs[0].prompt[:1] * one.output_len) for one in jobs]
        return _answer(*rows), float(peer in busy)

    monkeypatch.setattr(passes, "one_pass", one_pass)
    sessions: Any = {"a": "a", "b": "b"}
    return take_turns("W1", sessions, Scale(divide=8), 2), asked


def test_a_repeated_pass_has_new_tokens(monkeypatch: Any) -> None:
    found, asked = _turns(monkeypatch, busy="a")
    assert [runs.discarded for runs in found.values()] == [2 * MAX_REPEATS, 0]
    assert len({tuple(one[0].prompt) for one in asked["a"]}) == 1 + 2 * (1 + MAX_REPEATS)
    # Tokens are compared of passes with the same prompts, though only one peer repeated its own.
    assert found["a"].answer == found["b"].answer
    assert asked["a"][-1] != asked["b"][-1]


def test_a_quiet_pass_is_not_repeated(monkeypatch: Any) -> None:
    found, asked = _turns(monkeypatch, busy="")
    assert [runs.discarded for runs in found.values()] == [0, 0]
    assert asked["a"] == asked["b"] and len(asked["a"]) == 3


def _answer(*rows: tuple[float, float, list[int]]) -> dict[str, Any]:
    return {"requests": [{"first_s": f, "finish_s": e, "tokens": [t]} for f, e, t in rows]}


def test_figures_by_hand() -> None:
    jobs = [Job([1], 3), Job([1], 5, arrival_s=1.0)]
    found = figures(jobs, _answer((0.5, 1.5, [7] * 3), (1.25, 4.0, [7] * 5)))
    assert found["output_tokens_per_s"] == 2.0  # eight tokens until the last one at 4 s
    assert found["time_to_first_token_p50_ms"] == pytest.approx((500 + 250) / 2)
    assert found["time_per_output_token_p50_ms"] == pytest.approx((500 + 687.5) / 2, abs=0.01)
    assert found["normalised_latency_ms"] == pytest.approx((500 + 600) / 2)


def test_an_answer_of_another_length_does_not_count() -> None:
    with pytest.raises(ValueError, match="asked for 1 x 3 tokens, got"):
        figures([Job([1], 3)], _answer((0.5, 1.5, [7] * 2)))


def test_ratios_are_of_pairs_and_figures_medians() -> None:
    ours = [{"output_tokens_per_s": x} for x in (10.0, 20.0, 30.0)]
    theirs = [{"output_tokens_per_s": x} for x in (10.0, 5.0, 15.0)]
    assert ratio(ours, theirs, [True] * 3) == ratio(ours, theirs, [False] * 3) == 2.0
    assert ratio(ours, theirs, [True, False, False]) == 1.0
    assert medians(ours) == {"output_tokens_per_s": 20.0}


def test_agreement_names_the_first_difference() -> None:
    ours = _answer((0, 1, [1, 2, 3, 4]), (0, 1, [5, 6]))
    theirs = _answer((0, 1, [1, 2, 9, 4]), (0, 1, [5, 6]))
    found = agreement(ours, theirs)
    assert (found["equal_requests"], found["first_difference"]) == (1, "2 -")
    assert found["equal_tokens_percent"] == pytest.approx(100 * 5 / 6, abs=0.01)


def test_bounds_by_hand() -> None:
    config = config_from_hf(checkpoint.TINY)
    layers, head = 2 * (64 * 32 + 32 * 32 + 128 * 32 + 32 * 64), 128 * 32
    assert bounds.num_weights(config) == layers + head
    rates = {
        f"{d}_{p}_gflop_per_s": 1e-6 for d in ("float32", "bfloat16") for p in ("layers", "head")
    }
    measured = rates | {"read_bandwidth_gb_per_s": 1e-3}
    found = bounds.bounds(config, measured, [Job([1] * 3, 2)], "float32")
    assert found["W2"] == pytest.approx(1e6 / (4 * (layers + head)), abs=0.1)
    assert found["W1"] == pytest.approx(2e3 / (2 * 5 * layers + 2 * 2 * head), abs=0.1)


def test_load_and_memory_of_this_process() -> None:
    mine = quiet.tree(os.getpid())
    assert mine[0] == os.getpid() and quiet.peak_memory_mib(mine) > 10
    assert 0 < quiet.used_seconds([os.getpid()]) <= quiet.busy_seconds()


def test_what_peers_share_is_plain_python() -> None:
    """Interpreters that lack this project and its packages run these files."""
    code = "import wire, engine_loop, sys; print([m for m in ('numpy', 'jax') if m in sys.modules])"
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, cwd=SCRIPTS, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert all((SCRIPTS / peer.script).exists() for peer in PEERS.values())


def test_a_peer_that_cannot_load_says_why(tmp_path: Path) -> None:
    with pytest.raises(PeerFailed, match="KeyError: 'model'"):
        Session(PEERS[OURS], sys.executable, {}, tmp_path / "log")


def test_a_peer_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(session, "PATIENCE_S", 0.2)
    (tmp_path / "sleeps").write_text("#!/bin/sh\nexec sleep 1000000\n")
    (tmp_path / "sleeps").chmod(0o755)
    with pytest.raises(PeerFailed, match=r"no answer for 0\.2 s"):
        Session(PEERS[OURS], str(tmp_path / "sleeps"), {}, tmp_path / "log")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--workloads W9", "argument --workloads: 'W9'; known: W1, W2"),
        ("--workloads ,", "argument --workloads: name one at least: W1, W2"),
        ("--peers ours", "argument --peers: 'ours'; known: vllm"),
        ("--dtypes float16", "argument --dtypes: 'float16'; known: float32, bfloat16"),
        ("--runs 0", "argument --runs: must be more than 0, got 0"),
        ("--requests=-3", "argument --requests: must be more than 0, got -3"),
        ("--requests 1.5", "argument --requests: invalid int value: '1.5'"),
        ("--rate nan", "argument --rate: must be more than 0, got nan"),
    ],
)
def test_arguments_that_make_no_sense(arguments: str, said: str, capsys: Any) -> None:
    with pytest.raises(SystemExit, match="2"):
        registry.parse("compare", BENCHMARK, arguments.split())
    assert said in capsys.readouterr().err


def test_no_peer_is_ours_alone() -> None:
    assert registry.parse("compare", BENCHMARK, ["--peers", ""]).peers == []


def test_rows_of_quantised_files_have_their_own_bytes(tmp_path: Path, monkeypatch: Any) -> None:
    """A 4-bit block of 32 is 18 bytes; a decoded weight is as its dtype. Norms do not count."""
    import gguf

    path, (out, width) = tmp_path / "a.gguf", (64, 32)
    kind = gguf.GGMLQuantizationType.Q4_0
    blocks = gguf.quants.quantize(np.ones((out, width), np.float32), kind)
    write_gguf_file(
        path,
        "llama",
        {},
        {"token_embd.weight": blocks, "output_norm.weight": np.ones(width, np.float32)},
        {"token_embd.weight": kind},
    )
    config = config_from_hf(checkpoint.TINY)
    assert checkpoint.bytes_per_token(path) == out * 18
    runs = {peer: Runs([figures([Job([1], 2)], _answer((0.5, 1.0, [7, 7])))], [0.0]) for peer in Q}
    for one in runs.values():
        one.answer = _answer((0.5, 1.0, [7, 7])) | {"seconds": 1.0}
    runs[LLAMAS[0]].answer["decode_s"] = 0.75
    found = quantised.rows(runs, path, config, bandwidth=1e6)
    assert found[OURS]["bytes_per_token"] == found[LLAMAS[0]]["bytes_per_token"] == out * 18
    assert found[OURS]["read_bound_tokens_per_s"] == round(1e6 / (out * 18), 1)
    assert found["ours-dequantized"]["bytes_per_token"] == 2 * bounds.num_weights(config)
    assert found["ours-dequantized-float32"]["bytes_per_token"] == 4 * bounds.num_weights(config)
    assert found[LLAMAS[0]]["in_decode_percent"] == 75 and "in_decode_percent" not in found[OURS]
    one_case = {"file": "Q4_0", "workload": "W2", "peers": found | {"other": {"failure": "why"}}}
    assert list(quantised.headline({"": one_case}).values()) == [
        "2.0 output tokens/s; 1.00x llama.cpp"
    ]


def test_only_one_stream_has_the_bound_of_reading() -> None:
    row = {"output_tokens_per_s": 2.0, "read_bound_tokens_per_s": 8.0}
    assert table._share_of_reading(row | {"single": True}) == 25
    assert table._share_of_reading(row | {"single": False}) is None
    assert table._of_ran(table._share_of_reading)({"failure": "why"}) is None


def test_peers_on_quantised_files_have_scripts() -> None:
    assert all((SCRIPTS / peer.script).exists() for peer in Q.values())
