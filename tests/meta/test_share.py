"""`--share`: which cases of tests a short run keeps."""

import re
import subprocess
import sys
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.meta.trees import ROOT
from tests.support.share import by_chance, kept

NAMES = st.lists(st.integers(0, 40), min_size=1, max_size=9).map(
    lambda sizes: [
        f"tests/test_a.py::test_{number}" + (f"[{case}-x]" if size else "")
        for number, size in enumerate(sizes)
        for case in range(max(1, size))
    ]
)
FILE = """
import pytest

@pytest.mark.parametrize("place", range(20))
def test_many(place): ...

def test_one(): ...

@pytest.mark.slow
@pytest.mark.parametrize("place", range(20))
def test_slow(place): ...
"""


@given(NAMES, st.integers(1, 100), st.integers(0, 2**32))
def test_each_test_keeps_its_share_and_at_least_one(
    names: list[str], percent: int, seed: int
) -> None:
    found = kept(names, percent, seed)
    assert found <= set(names)
    for test in {name.partition("[")[0] for name in names}:
        cases = [name for name in names if name.partition("[")[0] == test]
        assert len(found & set(cases)) == ceil(len(cases) * percent / 100) >= 1
        assert kept(cases, percent, seed) == found & set(cases), "whatever other tests there are"
    assert kept(reversed(names), percent, seed) == found
    assert kept(names, 100, seed) == set(names)


def test_other_seeds_keep_other_cases_until_all_have_run() -> None:
    names = [f"test_a.py::test_b[{case}]" for case in range(30)]
    choices = [kept(names, 20, seed) for seed in range(60)]
    assert len({frozenset(one) for one in choices}) > 50
    assert set().union(*choices) == set(names)


def test_slow_cases_are_kept_by_chance() -> None:
    names = [f"test_a.py::test_b[{case}]" for case in range(50)]
    choices = [by_chance(names, 20, seed) for seed in range(100)]
    assert 800 < sum(map(len, choices)) < 1200
    assert set().union(*choices) == set(names) and by_chance(names, 100, 0) == set(names)
    assert by_chance(names[:9], 20, 1) == choices[1] & set(names[:9])


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 2])
def test_a_run_says_how_to_repeat_it(tmp_path: Path, processes: int) -> None:
    (tmp_path / "test_file.py").write_text(FILE)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += ["--numprocesses", str(processes), "--rootdir", str(tmp_path), str(tmp_path)]
    command += ["--share", "25", "--share-seed", "7"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    slow = [f"test_file.py::test_slow[{place}]" for place in range(20)]
    assert f"{6 + len(by_chance(slow, 25, 7))} passed" in run.stdout
    assert "--share 25 --share-seed 7" in run.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "files"), [(1, "acb"), (2, "cba")])
def test_no_test_begins_after_its_minutes(tmp_path: Path, seed: int, files: str) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"test_{name}.py").write_text("def test_it(): print('ran', __file__)")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += ["--rootdir", str(tmp_path), str(tmp_path), "-v", "--share-seed", str(seed)]

    def run(minutes: str) -> str:
        found = subprocess.run(
            [*command, "--minutes", minutes], cwd=ROOT, capture_output=True, text=True
        )
        assert found.returncode == 0, found.stdout + found.stderr
        return found.stdout

    assert "3 skipped" in run("0")
    whole = run("60")
    assert "".join(re.findall(r"test_(.)\.py::test_it PASSED", whole)) == files


@pytest.mark.parametrize("percent", ["0", "101", "-5", "many"])
def test_a_share_that_is_none_is_refused(percent: str) -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "--share", percent, __file__]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 4 and "--share" in run.stderr
