"""The measurements for GPUs run here in miniature, so that they are whole when there is a GPU."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import tune_kernels
from benchmarks.gpu import __main__ as run_all
from benchmarks.gpu import driver, experts, plan, predicted, products, said, sanitizer, table
from benchmarks.gpu.checks import DEVICE_TESTS, digest
from benchmarks.gpu.engine.child import GRAPHS, PARTS, TRACE
from benchmarks.gpu.engine.graphs import ON_DEVICE, VARIANTS
from benchmarks.gpu.engine.graphs import SMOKE as FEW_VARIANTS
from benchmarks.gpu.engine.invariant import PART as INVARIANT
from benchmarks.gpu.plan import BUDGET, PLAN, STEPS, Step
from benchmarks.gpu.record import Record
from benchmarks.gpu.shapes import AIMS, BESIDE, NEW, REST
from benchmarks.tune_kernels import SPACE, add_entry, candidates
from pallas_kernels import tuning
from tests.meta.trees import ROOT

SMALL = plan.SMALL


@pytest.mark.slow
def test_all_of_it_in_miniature(tmp_path: Path) -> None:
    """One call, as on a GPU: every step ends, and its figures are in the results."""
    tuned = tuning.TABLE_FILE.read_text("utf-8")
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHON": sys.executable}
    command = ["bash", "benchmarks/gpu.sh", "--smoke", "--output", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    log = (tmp_path / "smoke.log").read_text("utf-8")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-1000:] + log[-3000:]
    found = json.loads((tmp_path / "smoke.json").read_text("utf-8"))
    assert {name: one["status"] for name, one in found["steps"].items()} == {
        step.name: "done" for step in (*PLAN, *plan.SECOND) if step.in_smoke
    }
    peers = ("torch", "compute-sanitizer", "PyTorch")  # which this machine may lack
    assert [one for one in found["skipped"] if not one["what"].startswith(peers)] == []
    assert all(rate > 0 for rate in found["card"].values())
    assert "passed" in found["tests"]["pytest"]
    assert "test_tuning.py" in (tmp_path / "smoke-tests.txt").read_text("utf-8")
    assert {row["method"] for row in found["rows"]} >= {"xla", "triton", "mosaic"}
    assert {row["part"] for row in found["rows"]} == {"decode", "experts", "quantised weights"}
    assert all(float(error) < 1e-2 for error in found["errors"].values())
    parts = found["models"][SMALL]
    assert set(parts) == {"start", "warm-up", "graphs", "best graphs", INVARIANT, *plan.ENGINE}
    assert parts[INVARIANT]["decode of 1, times"] > 0
    same = {"compared": 2, "other tokens": 0, "other log-probabilities": 0}  # as on any CPU
    assert parts[INVARIANT]["requests that differ, batch-invariant"] == same
    assert set(parts["graphs"]["decode of 1"]) == {*FEW_VARIANTS, ON_DEVICE}
    assert parts["throughput"]["steps"] > 0 and parts["throughput"]["output_tokens_per_s"] > 0
    assert "attention over pages" in parts["profile"]["decode of 1"]["parts"]
    assert found["models"]["Llama-3.1-8B int4"]["decode"]["tokens_per_s"] > 0
    assert "TritonDecodeConfig" in log  # of the tuning, which leaves the table alone
    assert tuning.TABLE_FILE.read_text("utf-8") == tuned
    page = (tmp_path / "smoke.md").read_text("utf-8")
    assert "| model | what | measured | expected | aim |" in page
    assert "| decode of 1 | ms | ms to enqueue | behind others | s to compile |" in page
    assert "| figure | predicted | measured | because |" in page


def test_the_plan_fits_its_budget_and_names_what_there_is() -> None:
    assert sum(step.seconds for step in PLAN) <= BUDGET - 10
    assert sum(step.seconds for step in plan.SECOND) <= 250  # what a quarter of an hour leaves
    assert len(STEPS) == len(PLAN) + len(plan.SECOND) + len(plan.MORE)
    for step in STEPS.values():
        module, *words = step.command
        assert (ROOT / f"{module.replace('.', '/')}.py").exists()
        if module == plan.CHILD:
            model, *rest = words
            assert model in (plan.SMALL, plan.LARGE)
            chosen = rest[: next((i for i, w in enumerate(rest) if w[:2] == "--"), None)]
            assert set(chosen) <= {*PARTS, GRAPHS, TRACE}


def test_what_is_predicted_belongs_to_a_step_and_has_a_reason() -> None:
    assert set(predicted.PREDICTED) <= set(STEPS)
    for name in predicted.PREDICTED:
        for one in predicted.by_path(name).values():
            assert one["value"] and one["why"]
    paths = [one.path for each in predicted.PREDICTED.values() for one in each]
    assert len(set(paths)) == len(paths)
    for path in paths:
        assert path[0] in ("models", "peers") and (path[2] != "graphs" or path[4] in {
            *VARIANTS, ON_DEVICE})  # fmt: skip


def _steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, programs: dict[str, str]) -> None:
    """Steps that are programs of Python, on a card called "a card"."""
    for name, program in programs.items():
        (tmp_path / f"step_{name}.py").write_text(f"from benchmarks.gpu.said import *\n{program}")
    steps = tuple(Step(name, 20, (f"step_{name}",)) for name in programs)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{tmp_path}")
    monkeypatch.setattr(run_all, "PLAN", steps)
    monkeypatch.setattr(run_all, "SECOND", ())
    monkeypatch.setattr(run_all, "STEPS", {step.name: step for step in steps})
    monkeypatch.setattr(run_all, "nvidia_smi", lambda: ["a card", "580", "80 GiB"])


def _run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *words: str) -> tuple[int, Any]:
    command = ["benchmarks.gpu", "--output", str(tmp_path / "results"), *words]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        run_all.main()
    results = json.loads((tmp_path / "results" / "a-card.json").read_text("utf-8"))
    return int(ended.value.code or 0), results


@pytest.mark.slow
def test_a_step_that_fails_or_hangs_leaves_what_it_said_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hangs = "put('peers', 'b', value=2)\nimport time; time.sleep(3600)"
    programs = {
        "fails": "put('peers', 'a', value=1)\nskip('c', 'no reason')\nraise ValueError('wrong')",
        "hangs": hangs,
        "ends": "put('peers', 'd', value=4)\nprint('of interest to nobody')",
    }
    _steps(monkeypatch, tmp_path, programs)
    limits = {"fails": 600.0, "hangs": 15.0, "ends": 600.0}  # 15: Python starts in it anywhere
    monkeypatch.setattr(run_all, "_limit", lambda step, *_: limits[step.name])
    code, found = _run(monkeypatch, tmp_path)
    assert code == 1
    status = {name: one["status"] for name, one in found["steps"].items()}
    assert status == {"fails": "failed with status 1", "hangs": "cut off", "ends": "done"}
    assert found["peers"] == {"a": 1, "b": 2, "d": 4}
    assert found["skipped"] == [{"what": "c", "why": "no reason"}]
    log = (tmp_path / "results" / "a-card.log").read_text("utf-8")
    assert "ValueError: wrong" in log and "of interest to nobody" in log

    # The second call runs what failed, and keeps what the first one found.
    (tmp_path / "step_fails.py").write_text(
        "from benchmarks.gpu.said import *\nput('peers', 'a', value=9)"
    )
    (tmp_path / "step_hangs.py").write_text("")
    limits["hangs"] = 600.0
    code, found = _run(monkeypatch, tmp_path, "--failed")
    assert code == 0 and found["peers"] == {"a": 9, "b": 2, "d": 4}
    assert {one["status"] for one in found["steps"].values()} == {"done"}


def test_no_step_begins_when_the_time_is_spent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _steps(monkeypatch, tmp_path, {"one": "put('peers', 'a', value=1)"})
    code, found = _run(monkeypatch, tmp_path, "--budget", "1")
    assert code == 1 and found["peers"] == {}
    assert found["steps"]["one"]["status"] == "not begun: the time was spent"


def test_a_step_that_lacks_a_package_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _steps(monkeypatch, tmp_path, {"one": "put('peers', 'a', value=1)"})
    lacking = replace(run_all.PLAN[0], needs=("json", "no_such_package"))
    monkeypatch.setattr(run_all, "PLAN", (lacking,))
    code, found = _run(monkeypatch, tmp_path)
    assert code == 1
    status = found["steps"]["one"]["status"]
    assert status == "not begun: no_such_package cannot be imported"


def test_time_that_is_left_goes_to_the_steps_that_follow() -> None:
    steps = [Step("a", 10, ("a",)), Step("b", 30, ("b",))]
    assert run_all._limit(steps[0], steps, 40) == 10
    assert run_all._limit(steps[1], steps, 60) == 60
    assert run_all._limit(steps[1], steps, 15) == 30  # the caller allows no more than is left


def test_the_way_to_make_graphs_whose_slower_side_is_faster() -> None:
    host_bound = {
        "PIECEWISE": {"ms": 2.0, "queued_ms": 2.0},
        "FULL": {"ms": 1.4, "queued_ms": 0.1},
        "odd": {"ms": 1.3, "queued_ms": 1.9},
        ON_DEVICE: {"ms": 1.0},
    }
    assert plan.best_graphs({"decode of 1": host_bound}) == "FULL"
    slower = {"PIECEWISE": {"ms": 4.0, "queued_ms": 1.0}, "FULL": {"ms": 8.0, "queued_ms": 0.1}}
    assert plan.best_graphs({"decode of 1": host_bound, "decode of 256": slower}) == "PIECEWISE"
    failed = {name: slower[name] for name in ("FULL",)}
    assert plan.best_graphs({"decode of 1": failed}) == "PIECEWISE"
    assert plan.best_graphs({}) == "PIECEWISE"


def test_a_prediction_stands_beside_the_figure_of_its_path() -> None:
    content = {"peers": {"decode of 1, tokens/s": {"1B": 5}}}
    assert table.measured(content, "peers / decode of 1, tokens/s / 1B") == 5
    assert table.measured(content, "peers / decode of 1, tokens/s / 8B") == ""
    assert table.measured(content, "models / 1B / decode") == ""


def test_a_new_measurement_replaces_the_old_one_of_its_name(tmp_path: Path) -> None:
    def row(method: str, us: float) -> dict[str, Any]:
        row = {"part": "decode", "shape": "one", "method": method, "us": us}
        return {"row": row | {"predicted_us": 1.0, "percent_of_limit": 50.0}}

    first = Record(tmp_path, "card", "first", str)
    for said_line in (row("triton", 3.0), row("mosaic", 4.0), row("triton", 2.0)):
        first.take(said_line)
    first.take({"put": ["models", "1B", "decode"], "value": 5})
    first.take({"put": ["models", "1B", "decode"], "value": 6})
    added = Record(tmp_path, "card", "second", str, add=True)
    assert [one["us"] for one in added.content["rows"]] == [4.0, 2.0]
    assert added.content["models"] == {"1B": {"decode": 6}}
    assert Record(tmp_path, "card", "third", str).content["rows"] == []
    assert Record(tmp_path, "other", "fourth", str, add=True).content["rows"] == []


def test_a_measurement_that_fails_or_comes_too_late_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ValueError("two\nlines")

    assert not said.attempt("what fails", fail)
    monkeypatch.setattr(said, "STARTED", time.perf_counter() - 100)
    assert not said.attempt("what is late", lambda: said.put("a", value=1), 50.0)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        {"skip": "what fails", "why": "ValueError: two"},
        {"skip": "what is late", "why": "the time was spent"},
    ]


SAID = """\
tests/kernels/test_merge.py::test_one PASSED                    [ 50%]
[gw1] [ 75%] FAILED tests/kernels/test_merge.py::test_two[triton-lse]
[gw0] [100%] SKIPPED tests/kernels/test_merge.py::test_three
FAILED tests/kernels/test_merge.py::test_two[triton-lse] - AssertionError
==== 1 failed, 1 passed, 1 skipped in 3.21s ====
"""


def test_the_kernels_tests_in_a_line_and_the_names_of_failures() -> None:
    """Those of a run that was cut off as well, which has no summary."""
    name = "tests/kernels/test_merge.py::test_two[triton-lse]"
    assert digest(SAID, None) == {
        "pytest": "1 failed, 1 passed, 1 skipped in 3.21s",
        "failure 0": name,
    }
    cut_off = "\n".join(SAID.splitlines()[:3])
    found = digest(cut_off, "cut off after 9 s")
    assert found["pytest"] == "1 failed, 1 passed, 1 skipped, cut off after 9 s"
    assert found["failure 0"] == name
    assert digest("", None) == {"pytest": "it printed nothing"}


def test_the_tests_for_a_device_are_there() -> None:
    for name in DEVICE_TESTS:
        assert (ROOT / "tests" / "kernels" / f"test_{name}.py").exists()


def test_what_the_sanitizer_says() -> None:
    printed = "noise\n========= ERROR SUMMARY: 2 errors\n"
    assert sanitizer.verdict(printed) == "2 errors"
    hazards = "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
    assert sanitizer.verdict(hazards) == "0 hazards displayed (0 errors, 0 warnings)"
    assert sanitizer.verdict("Device not supported") == "no summary: Device not supported"


def test_a_machine_without_a_gpu_is_told_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(driver, "COMMAND", ("no-such-program",))
    assert driver.nvidia_smi() == []
    assert driver.file_name("NVIDIA H100 80GB HBM3") == "nvidia-h100-80gb-hbm3"
    monkeypatch.setattr(sys, "argv", ["benchmarks.gpu", "--output", str(tmp_path)])
    with pytest.raises(SystemExit, match="no GPU here"):
        run_all.main()


def test_tuning_begins_with_the_kernels_that_hopper_prefers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tune_kernels, "available_backends", lambda _: ["mosaic", "triton", "xla"])
    work = [(kernel, shape.part, shape.dim) for shape, kernel in tune_kernels._work(smoke=False)]
    assert work[:3] == [
        ("mosaic_prefill", "prefill", 128),
        ("triton_decode", "decode", 128),
        ("mosaic_prefill", "prefill", 64),
    ]
    assert {kernel for kernel, _, _ in work} == set(tuning.KERNELS)
    assert len(set(work)) * len(tune_kernels.BLOCK_SIZES) == len(work)


def test_what_tuning_finds_is_what_the_kernels_look_up(tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    chosen = {kernel: list(candidates(kernel))[-1] for kernel in SPACE}
    for kernel, config in chosen.items():
        add_entry(file, ("NVIDIA H200", kernel, 128, 16, "bfloat16"), config)
    assert {key[1]: config for key, config in tuning.load(file).items()} == chosen
    assert set(chosen) == set(tuning.KERNELS)


def test_tuning_compares_the_prefill_with_and_without_ping_pong() -> None:
    """The default without it comes first, in case time is short; one warpgroup cannot have it."""
    found: list[Any] = list(candidates("mosaic_prefill"))
    default: Any = tuning.default("mosaic_prefill", 128, "bfloat16")
    assert default.ping_pong
    assert found[:2] == [replace(default, ping_pong=False), default]
    assert len(set(found)) == len(found) == 2 * 3 * (2 + 1)
    assert all(c.block_q == 128 for c in found if c.ping_pong)


def test_the_limits_of_a_decode_by_hand() -> None:
    """64 sequences of 4096 tokens, 8 heads of 128 in bfloat16: 2 * 8 * 128 * 2 bytes a token."""
    decode = AIMS[0]
    keys_and_values = 64 * 4096 * 2 * 8 * 128 * 2
    assert 0 < decode.traffic - keys_and_values < keys_and_values // 100
    assert decode.predicted_s(1e12, 1e18) == decode.traffic / 1e12
    prefill = AIMS[2]
    assert prefill.flops == 4 * 32 * 128 * 8192 * 8193 // 2
    assert prefill.predicted_s(1e18, 1e12) == prefill.flops / 1e12


def test_the_limits_of_products_by_hand() -> None:
    """Gate and up of the 8B in 4 bits: half a byte a number, a scale of four for 128 of them."""
    chosen = ("int4", 1, 128, 28672)
    (product,) = (
        one for one in products.PRODUCTS if (one.kind, one.tokens, one.group, one.out) == chosen
    )
    codes, scales = 28672 * 4096 // 2, 4 * 28672 * 4096 // 128
    assert product.traffic == codes + scales + 2 * (4096 + 28672)
    assert product.flops == 2 * 4096 * 28672
    one = experts.Experts(8, experts=64, size=128)
    used = len(set(experts.np.random.default_rng(0).integers(64, size=8).tolist()))
    assert one.traffic == used * 128 * 128 * 2 + 2 * 8 * 128 * 2 and one.counts.sum() == 8


def test_no_two_measurements_share_a_name() -> None:
    """A row of a shape that an earlier part has measured would replace its row."""
    for shapes in ((*NEW, *REST), BESIDE):
        names = [shape.name for shape in shapes]
        assert len(set(names)) == len(names)
