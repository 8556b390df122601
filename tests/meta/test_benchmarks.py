"""The benchmarks' own parts: traces are what they claim, results say where they come from."""

import argparse
import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from benchmarks import report, soak
from benchmarks.accuracy import quantised
from benchmarks.accuracy.questions import Question
from benchmarks.report import write_result
from benchmarks.tables import quantising_table
from benchmarks.workload import read_lengths, sharegpt_requests


def test_trace_has_the_lengths_of_the_file() -> None:
    pairs = set(read_lengths())
    requests = sharegpt_requests(50, vocab_size=100, max_model_len=600, seed=1)
    assert all((len(r.prompt_token_ids), r.output_len) in pairs for r in requests)
    assert all(len(r.prompt_token_ids) + r.output_len <= 600 for r in requests)
    assert {r.arrival_s for r in requests} == {0.0}
    assert all(3 <= token < 100 for r in requests for token in r.prompt_token_ids)


def test_same_seed_same_trace() -> None:
    def make(seed: int) -> object:
        return sharegpt_requests(9, request_rate=2.0, vocab_size=99, max_model_len=900, seed=seed)

    assert make(3) == make(3) != make(4)


def test_poisson_arrivals_have_the_rate() -> None:
    requests = sharegpt_requests(4000, request_rate=5.0, vocab_size=9, max_model_len=64)
    gaps = np.diff([0.0, *(r.arrival_s for r in requests)])
    assert abs(gaps.mean() - 0.2) < 0.02 and abs(gaps.std() - 0.2) < 0.03


def test_a_result_names_machine_versions_date_and_command(tmp_path: Path) -> None:
    path = write_result("x", {"tokens_per_s": 1.5}, tmp_path / "x.json", arguments={"seed": 0})
    found = json.loads(path.read_text())
    assert found["result"] == {"tokens_per_s": 1.5}
    assert found["machine"]["cores"] >= 1 and found["versions"]["jax"]
    assert found["date"].endswith("UTC") and found["command"].startswith("python")
    assert str(Path.home()) not in path.read_text()


def test_the_command_of_a_result_can_be_typed(tmp_path: Path) -> None:
    path = write_result("x", {}, tmp_path / "x.json", command="python -m benchmarks.x --save")
    assert json.loads(path.read_text())["command"] == "python -m benchmarks.x --save"
    for saved in report.load_results():
        python, flag, module, *_ = saved["command"].split()
        assert (python, flag) == ("python", "-m"), saved["command"]
        assert find_spec(module) is not None, saved["command"]


@pytest.mark.slow
def test_a_soak_looks_at_memory_and_leaves_nothing(tmp_path: Path) -> None:
    engine = soak.build(tmp_path)
    looks = soak.soak(engine, 60, looks=3)
    assert len(looks) == 3 and looks[-1].requests == 60
    assert all(one.resident_mib > one.touched_kv_mib > 0 for one in looks)
    assert looks[-1].programs >= looks[0].programs > 0
    result = soak.summary(looks)
    assert result["growth_percent"] >= 0 and len(result["looks"]) == 3
    stats = engine.stats()
    assert stats.num_used_blocks == 0 and not engine.has_unfinished_requests()


def test_a_quantised_model_beside_floats_by_hand() -> None:
    asked = [Question(str(answer), "", ["a", "b", "c"], answer) for answer in (2, 0, 1)]
    floats = quantised.Found(np.array([1.0, 3.0]), [2, 1, 1])
    found = quantised.Found(np.array([2.0, 2.5]), [2, 0, 0])
    assert quantised.row(found, floats, asked) == {
        "perplexity": 9.4877,  # exp(2.25)
        "perplexity_above_float_percent": 28.403,  # exp(0.25) - 1
        "right_answers": 2,
        "answers_unlike_float": 2,
    }
    with pytest.raises(SystemExit, match="other tokens"):
        quantised.row(quantised.Found(np.ones(3), [0, 0, 0]), floats, asked)


def test_cases_of_earlier_runs_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (report, quantised):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    one = {"perplexity": 2.0, "right_answers": 1}
    size = {"questions": 3, "tokens": 2}
    for cases in ({"w8a8": one}, {"mine": one}, {"float32": one, "w8a8": one | {"perplexity": 3}}):
        quantised.save(argparse.Namespace(), size, cases)
    result = report.load_result(quantised.NAME)
    assert list(result["result"]["cases"]) == ["float32", "w8a8", "mine"]
    assert result["result"]["cases"]["w8a8"]["perplexity"] == 3
    assert len(result["headline"]) == 1
    quantised.save(argparse.Namespace(), size | {"questions": 4}, {"fp8": one})
    assert list(report.load_result(quantised.NAME)["result"]["cases"]) == ["fp8"]


def test_a_model_that_is_nowhere_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"w4a17 is no model; cases are float32, .*w4a16"):
        quantised.parse_args(["w4a17"])


def test_each_case_of_a_committed_result_is_a_row() -> None:
    result = report.load_result(quantised.NAME)["result"]
    rows = quantising_table().splitlines()[4:]
    assert [line.split("`")[1] for line in rows] == list(result["cases"])
