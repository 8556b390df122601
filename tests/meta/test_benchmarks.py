"""What benchmarks share: traces, the registry, results that say where they come from, tables."""

import argparse
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import registry, report, single_stream, soak
from benchmarks.accuracy import quantised
from benchmarks.accuracy.questions import Question
from benchmarks.markdown import Column, grid, named, table, words
from benchmarks.registry import Benchmark, flag
from benchmarks.workload import read_lengths, sharegpt_requests
from tests.meta.trees import ROOT


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


def _benchmark(**settings: Any) -> Benchmark:
    """Two parts, which count `--times`."""

    def run(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
        for number in range(args.times):
            yield {"case": {f"{number}_ms": 1.5}, "smoke": args.smoke}

    where = flag("--where", type=Path)
    return Benchmark(run, (flag("--times", type=int, default=2), where), {"times": 1}, **settings)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Runs such a benchmark, and gives the file that it wrote."""

    def run(*words: str, **settings: Any) -> dict[str, Any]:
        monkeypatch.setattr(registry, "load", lambda name: _benchmark(**settings))
        monkeypatch.setattr(registry, "description", lambda name: "Counts")
        monkeypatch.setattr(registry, "RESULTS", tmp_path)
        registry.main(["a.b", *words])
        files = list(tmp_path.glob("*.json"))
        return json.loads(files[0].read_text("utf-8")) if files else {}

    return run


def test_parts_are_joined_and_kept_with_where_they_come_from(kept: Any, capsys: Any) -> None:
    found = kept("--save", "--where", "/a/folder", headline=lambda args, all_of_it: {"x": "1"})
    assert found["result"] == {"case": {"0_ms": 1.5, "1_ms": 1.5}, "smoke": False}
    assert (found["name"], found["headline"]) == ("a_b", {"x": "1"})
    assert found["arguments"] == {"times": 2}
    assert found["command"] == "python -m benchmarks a.b --save --where WHERE"
    assert found["machine"]["cores"] >= 1 and found["versions"]["jax"]
    assert found["date"].endswith("UTC")
    assert "smoke False\ncase: 1_ms 1.5\n" in capsys.readouterr().out


def test_a_smoke_run_is_small_and_keeps_nothing_unless_told_where(
    kept: Any, tmp_path: Path, capsys: Any
) -> None:
    assert kept("--smoke") == {} and "1_ms" not in capsys.readouterr().out
    assert kept() == {} and "1_ms" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        kept("--smoke", "--save")
    found = kept("--smoke", "--times", "3", "--output", str(tmp_path))  # what is typed counts
    assert found["result"]["case"].keys() == {"0_ms", "1_ms", "2_ms"}
    assert found["command"].endswith("--output OUTPUT")


def test_what_is_cut_off_keeps_its_parts(kept: Any, tmp_path: Path) -> None:
    def cut_off(part: dict[str, Any]) -> str:
        if "1_ms" in part["case"]:
            raise KeyboardInterrupt
        return ""

    with pytest.raises(KeyboardInterrupt):
        kept("--save", show=cut_off, headline=lambda args, all_of_it: {"x": "1"})
    found = json.loads((tmp_path / "a_b.json").read_text("utf-8"))
    assert found["result"]["case"] == {"0_ms": 1.5} and found["headline"] == {}


def test_files_merges_and_wrong_results(kept: Any, tmp_path: Path) -> None:
    def merge(args: Any, saved: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        return saved | new

    def files(args: Any, figures: dict[str, Any]) -> dict[str, dict[str, Any]]:
        return {"other": {str(args.times): figures["case"]}}

    kept("--save", "--times", "1", files=files, merge=merge)
    with pytest.raises(SystemExit, match="it is wrong"):
        kept("--save", files=files, merge=merge, wrong=lambda figures: "it is wrong")
    assert [file.name for file in tmp_path.iterdir()] == ["other.json"]
    assert list(json.loads((tmp_path / "other.json").read_text())["result"]) == ["1", "2"]


def test_a_machines_first_start_is_a_file_of_its_own() -> None:
    found = {"first_first_token_s": 40.0, "warm_first_token_s": 3.0}
    assert single_stream.files(argparse.Namespace(), found) == {
        "first_start": {"first_first_token_s": 40.0},
        "single_stream": {"warm_first_token_s": 3.0},
    }


def test_without_a_name_all_are_listed(capsys: Any) -> None:
    registry.main([])
    said = capsys.readouterr().out
    assert all(re.search(rf"^{re.escape(name)} +\w", said, re.M) for name in registry.names())
    with pytest.raises(SystemExit, match="no benchmark is called 'speed'; known are accuracy, "):
        registry.load("speed")


def test_every_benchmark_is_listed() -> None:
    listed = (ROOT / "docs" / "measured.md").read_text("utf-8")
    assert len(registry.names()) > 40
    assert [name for name in registry.names() if f"`{name}`" not in listed] == []


def test_the_command_of_a_result_can_be_typed() -> None:
    for saved in report.load_results():
        python, flag, package, name, *_ = report.present(saved["command"]).split()
        assert (python, flag, package) == ("python", "-m", "benchmarks"), saved["command"]
        assert name in registry.names(), saved["command"]
    gpu = "python -m benchmarks.gpu --smoke"
    assert report.present(gpu) == gpu


def test_a_table_has_headings_cells_and_their_forms() -> None:
    columns = [
        words(""),
        Column("ms", "ms", "{:.1f}"),
        Column("of it", ("parts", "a"), "{:,}"),
        Column("ratio", lambda row: row.get("ratio"), "{:.2f}x"),
    ]
    rows = named({"one": {"ms": 1.25, "parts": {"a": 1000}, "ratio": 2}, "note": 3})
    rows += named({"two": {"ms": 3, "parts": {"a": 5}}})
    assert table(columns, rows).splitlines() == [
        "| | ms | of it | ratio |",
        "|---|---:|---:|---:|",
        "| one | 1.2 | 1,000 | 2.00x |",
        "| two | 3.0 | 5 |  |",
    ]
    with pytest.raises(KeyError, match="parts"):
        table(columns, [{"name": "no parts", "ms": 1}])
    assert grid(("a", "b"), [("x", 1)]) == "| a | b |\n|---|---:|\n| x | 1 |"


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


def test_cases_of_earlier_runs_stay() -> None:
    one = {"perplexity": 2.0, "right_answers": 1}
    size: dict[str, Any] = {"questions": 3, "tokens": 2}
    args = argparse.Namespace()
    saved = size | {"cases": {"mine": one, "w8a8": one}}
    new = size | {"cases": {"float32": one, "w8a8": one | {"perplexity": 3}}}
    found = quantised.merge(args, saved, new)
    assert list(found["cases"]) == ["float32", "w8a8", "mine"]
    assert found["cases"]["w8a8"]["perplexity"] == 3
    assert len(quantised.headline(args, found)) == 1
    other = quantised.merge(args, found, size | {"questions": 4, "cases": {"fp8": one}})
    assert list(other["cases"]) == ["fp8"]


def test_a_model_that_is_nowhere_is_refused(capsys: Any) -> None:
    with pytest.raises(SystemExit, match="2"):
        registry.parse("accuracy.quantised", quantised.BENCHMARK, ["w4a17"])
    said = capsys.readouterr().err
    assert "w4a17 is no model; cases are float32, " in said and ", w4a16" in said
