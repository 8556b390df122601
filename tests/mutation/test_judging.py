"""Tests are collected for planted bugs, in a process of their own; what a sample draws."""

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.meta.trees import ROOT
from tests.mutation import sample
from tests.mutation.generated import all_generated
from tests.mutation.verdicts import Verdict

COLLECT = """
import sys
from tests.mutation.judging import with_tests
with_tests(sys.argv[1:], lambda items: print(len(items), "tests"))
print("and on")
"""


def collect(*paths: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", COLLECT, *paths]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
def test_whole_suites_need_not_have_run() -> None:
    """A run of both fails if one of their events never happened. Here nothing is run."""
    suites = [f"tests/properties/test_engine_{one}.py" for one in ("shell", "against_reference")]
    done = collect(*suites)
    assert done.returncode == 0 and " tests\nand on" in done.stdout, done.stderr


def test_a_file_that_cannot_be_imported_ends_it(tmp_path: Path) -> None:
    broken = tmp_path / "test_broken.py"
    broken.write_text("import nothing_of_this_name\n")
    done = collect(str(broken))
    assert done.returncode == 1 and "could not be collected" in done.stderr
    assert "and on" not in done.stdout


@pytest.mark.slow
def test_a_file_that_uses_a_device_is_named(tmp_path: Path) -> None:
    """A fork of a process that has a device hangs when it uses it."""
    early = tmp_path / "test_early.py"
    early.write_text("import jax.numpy as jnp\nONE = jnp.int32(1)\ndef test(): pass\n")
    done = collect("tests/mutation/test_rules.py", str(early))
    assert done.returncode == 1 and "test_early.py uses a device" in done.stderr
    assert "and on" not in done.stdout


def test_a_sample_draws_what_was_noticed_in_the_code_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever else survives says nothing about a change, and must not fail it."""
    noticed, _, _, of_old_code, *_ = bugs = all_generated(["compat"])
    known = {
        one.name: Verdict(one.function.key, kind, "tests/some.py::test_some (hung)", "")
        for one, kind in zip(bugs, ("killed", "survived", "equivalent", "killed"), strict=False)
    }
    known[of_old_code.name] = replace(known[noticed.name], key="another")
    monkeypatch.setattr(sample, "all_generated", lambda folders: bugs)
    monkeypatch.setattr(sample.verdicts, "read", lambda name: known if name == "compat" else {})
    monkeypatch.setattr(sample, "MUTANTS", [])
    assert sample._draw(random.Random(0)) == [(noticed, "tests/some.py::test_some")]
