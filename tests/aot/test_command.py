"""The command without a compiler for GPUs: what it lists, and what it makes of crashes."""

import sys
from typing import Any

import pytest

from pallas_kernels.aot import pool
from pallas_kernels.aot.__main__ import _targets
from pallas_kernels.aot.cases import cases
from pallas_kernels.aot.rocm import plugin
from pallas_kernels.aot.table import failed, table
from pallas_kernels.aot.targets import TARGETS

OUTCOME: dict[str, Any] = {
    "case": "attention/triton/decode",
    "target": "h200",
    "seconds": 1.0,
    "kernels": [{"name": "decode", "registers": 99, "spilled": 0, "shared": 7}],
    "copies": [],
    "temporary": 0,
    "aliased": 0,
    "launches": 0,
    "starts": [18, 18, 16, 254],
    "collectives": [["all-gather", 65, 1024], ["all-reduce", 1, 8]],
    "refused": "",
    "problems": [],
}


@pytest.mark.parametrize("name", TARGETS)
def test_each_target_has_cases_of_each_of_its_backends_and_no_others(name: str) -> None:
    target = TARGETS[name]
    backends = {case.split("/")[1] for case in cases(target) if case.startswith("attention/")}
    assert backends == set(target.backends)
    assert ("mosaic" in backends) == (target.platform == "cuda" and target.major >= 9)


def test_without_amds_compilers_their_target_is_left_out_by_name_or_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plugin, "lacking", lambda: None)
    assert _targets(None) == ["h200", "a100", "mi300x"] and _targets(["mi300x"]) == ["mi300x"]
    monkeypatch.setattr(plugin, "lacking", lambda: "a plugin")
    assert _targets(None) == ["h200", "a100"] and _targets(["l40s"]) == ["l40s"]
    assert "mi300x is left out: this machine lacks a plugin" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="cannot compile for mi300x: this machine lacks a plugin"):
        _targets(["h200", "mi300x"])


def test_the_table_names_what_is_wrong() -> None:
    spilled = OUTCOME | {"case": "bad", "problems": ["decode spills 8 bytes"]}
    refused = OUTCOME | {"case": "none", "refused": "float32"}
    text = table([OUTCOME, spilled, refused])
    assert "h200 bad:\n    decode spills 8 bytes" in text and "none: lacks float32" in text
    # Graphs, updates, exchanges.
    assert text.splitlines()[1].split()[-5:-2] == ["18", "16", "66"]
    assert "3 cases, 1 with problems, 1 not offered" in text
    assert [failed(o) for o in (OUTCOME, spilled, refused)] == [False, True, False]


def test_a_compiler_that_ends_its_process_fails_its_case_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stand-in for the worker that dies at one case and answers all others."""
    answer = (
        "import json, sys\n"
        "for case in sys.stdin:\n"
        "    if case.strip() == 'deadly': sys.exit(3)\n"
        "    print(json.dumps({'case': case.strip(), 'problems': []}), flush=True)\n"
    )
    popen = pool.subprocess.Popen

    def start(command: list[str], **options: Any) -> Any:
        return popen([sys.executable, "-c", answer], **options)

    monkeypatch.setattr(pool.subprocess, "Popen", start)
    work = [("h200", name) for name in ("one", "deadly", "two", "three")]
    outcomes = {o["case"]: o["problems"] for o in pool.run_cases(work, ["some.cases"], jobs=1)}
    assert outcomes.pop("deadly") == ["the compiler ended its process (exit status 3)"]
    assert outcomes == {"one": [], "two": [], "three": []}
