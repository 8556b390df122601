"""Tests are collected for planted bugs, in a process of their own; what a sample draws."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.meta.trees import ROOT
from tests.mutation import killers, sample, where
from tests.mutation.generated import FOLDERS, RULES, of_file
from tests.mutation.killers import Row

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_none_of_the_tests_that_folders_name_uses_a_device_too_early() -> None:
    done = collect(*sorted({path for folder in FOLDERS for path in where.tests_of(folder)}))
    assert done.returncode == 0 and "and on" in done.stdout, done.stderr


def test_a_sample_draws_what_was_killed_in_the_code_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever else survives says nothing about a change, and must not fail it."""
    file, test = "jax_engine/compat/names.py", "tests/mutation/test_rules.py"
    bugs = of_file(file)
    keys = {bug.function.key for bug in bugs if bug.function.name == "where"}
    rows = [Row(file, 1, (test,), frozenset(keys)), Row(file, 2, ("tests/gone.py",), frozenset())]
    monkeypatch.setattr(sample.killers, "read", lambda: rows)
    monkeypatch.setattr(sample, "MUTANTS", [])
    (draw,) = sample.drawn(random.Random(0))
    assert draw.tests == (test,) and 3 <= len(draw.bugs) <= sample.MOST_BUGS
    assert {bug.name.function for bug in draw.bugs} == {"where"}
    assert not {bug.name.rule for bug in draw.bugs} & set(RULES[1])


def test_functions_whose_bugs_examples_killed_are_kept() -> None:
    """A group of rules with a survivor, or with a bug that was noticed by chance, is left out."""
    tests = ["a.py"] * 3 + ["b.py"]
    killed = {
        "whole": [(1, "a.py"), (2, "a.py")],
        "half": [(1, "b.py"), (2, "")],
        "none": [(1, ""), (2, "a.py")],
        "other": [(1, one) for one in tests],
    }
    first, second = killers._rows("some.py", killed)
    assert (first.groups, first.keys) == (2, {"whole", "other"})
    assert (second.groups, second.keys, second.tests) == (1, {"half"}, ("b.py",))
