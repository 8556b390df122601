"""The measurements for GPUs run here in miniature, so that they are whole when there is a GPU."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import tune_kernels
from benchmarks.gpu import __main__ as kernels
from benchmarks.gpu import needs
from benchmarks.gpu.checks import DEVICE_TESTS, digest
from benchmarks.gpu.record import Record
from benchmarks.gpu.shapes import AIMS, SHAPES
from benchmarks.tune_kernels import SPACE, add_entry, candidates
from pallas_kernels import tuning
from tests.meta.trees import ROOT


def run(*command: str) -> str:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHON": sys.executable}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_all_of_it_in_miniature(tmp_path: Path) -> None:
    run("bash", "benchmarks/gpu.sh", "--only", "kernels", "--smoke", "--output", str(tmp_path))
    found = json.loads((tmp_path / "smoke.json").read_text("utf-8"))
    assert {row["method"] for row in found["rows"]} >= {"xla", "triton", "mosaic"}
    assert all(float(error) < 1e-2 for error in found["errors"].values())
    assert "passed" in found["tests"]["pytest"]
    assert all(rate > 0 for rate in found["card"].values())
    assert "test_tuning.py" in (tmp_path / "smoke-tests.txt").read_text("utf-8")
    assert "| predicted us | measured us |" in (tmp_path / "smoke.md").read_text("utf-8")


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


def test_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without msgspec the kernels are measured; without PyTorch everything but PyTorch."""
    there = needs.find_spec
    lacking = {"msgspec", "torch"}
    monkeypatch.setattr(needs, "find_spec", lambda name: None if name in lacking else there("json"))
    monkeypatch.setattr(sys, "argv", ["needs", "kernels", "tune"])
    with pytest.raises(SystemExit) as ended:
        needs.main()
    assert not ended.value.code
    assert capsys.readouterr().out == "kernels: no torch, so without PyTorch's attention\n"
    monkeypatch.setattr(sys, "argv", ["needs", "engine"])
    with pytest.raises(SystemExit) as ended:
        needs.main()
    assert ended.value.code
    assert "engine: cannot run, because msgspec cannot be imported" in capsys.readouterr().out


def test_tuning_in_miniature_leaves_the_table_alone() -> None:
    before = tuning.TABLE_FILE.read_text("utf-8")
    assert "TritonDecodeConfig" in run(sys.executable, "-m", "benchmarks.tune_kernels", "--smoke")
    assert tuning.TABLE_FILE.read_text("utf-8") == before


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


def test_a_run_may_add_to_what_the_files_hold(tmp_path: Path) -> None:
    empty: dict[str, Any] = {"rows": [], "errors": {}}
    first = Record(tmp_path, "card", "first", empty, str)
    first.put("rows", [{"shape": AIMS[0].name, "method": "triton"}])
    first.skip("the rest", "the time was spent")
    added = Record(tmp_path, "card", "second", empty, str, add=True)
    assert added.content["rows"] == first.content["rows"] and added.content["skipped"] == []
    assert kernels._there(added, AIMS[0], "triton")
    assert not kernels._there(added, AIMS[0], "mosaic")
    assert not kernels._there(added, AIMS[1], "triton")
    assert Record(tmp_path, "card", "third", empty, str).content["rows"] == []
    assert Record(tmp_path, "other", "fourth", empty, str, add=True).content["rows"] == []


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


def test_no_two_measurements_share_a_name() -> None:
    names = [(shape.part, shape.name) for shape in SHAPES]
    assert len(set(names)) == len(names)
