"""`pytest --conformance KIND=TARGET`: a test for each property."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TINY = "tests.conformance.tiny"


def run(folder: Path, *arguments: str, seconds: float = 60) -> tuple[int, str]:
    """Runs pytest in a folder that has one test of its own."""
    (folder / "test_own.py").write_text("def test_own():\n    pass\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "paged_conformance.pytest_plugin"),
            *("-v", "--no-header", "-p", "no:cacheprovider", "-o", "addopts="),
            *(f"--conformance-seconds={seconds}", "--rootdir", str(folder), *arguments),
        ],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def test_each_property_is_a_test_beside_the_others(tmp_path: Path) -> None:
    status, out = run(tmp_path, f"--conformance={TINY}={TINY}:right", seconds=2)
    assert status == 0
    assert "test_own.py::test_own PASSED" in out
    assert f"conformance[{TINY}={TINY}:right]::holds-the-sum PASSED" in out
    assert "lends SKIPPED (the target lacks lend" in out
    assert "3 passed, 1 skipped" in out


def test_a_failure_is_printed_as_the_command_prints_it(tmp_path: Path) -> None:
    status, out = run(tmp_path, f"--conformance={TINY}={TINY}:forgetful", "-k", "holds-the-sum")
    assert status == 1
    assert "1 failed, 3 deselected" in out
    assert "FELL holds-the-sum (I1)\nA purse holds what was put into it." in out
    assert "The smallest example:\n[21]" in out
    script = "conformance-failures/tests-conformance-tiny-holds-the-sum.py"
    assert f"Repeat it: python {script}" in out
    assert (tmp_path / script).exists()
    assert "pytest_items.py" not in out, "our own frames are not shown"


def test_known_failures_are_expected(tmp_path: Path) -> None:
    (tmp_path / "known").write_text("holds-the-sum # issue 7\nlends # it was so\n")
    known = "--conformance-known=known"
    only = ("-k", "holds-the-sum or lends")
    status, out = run(tmp_path, f"--conformance={TINY}={TINY}:forgetful", known, *only)
    assert (status, "XFAIL (issue 7)" in out) == (0, True), out
    status, out = run(tmp_path, f"--conformance={TINY}={TINY}:lender", known, *only, seconds=2)
    assert status == 1
    assert out.count("it held, but is in the file of known failures") >= 2


def test_nothing_but_skips_is_a_failure(tmp_path: Path) -> None:
    status, out = run(tmp_path, f"--conformance={TINY}={TINY}:right", "-k", "lends")
    assert (status, "1 skipped" in out) == (0, True), "one was chosen"
    lacking = "tests.conformance.needy"
    status, out = run(tmp_path, f"--conformance={lacking}={TINY}:right")
    assert status == 1
    assert "no property of this suite ran: all were skipped" in out


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (f"{TINY}:right", "write KIND=module:name"),
        (f"scheduller={TINY}:right", "Did you mean 'scheduler'?"),
    ],
)
def test_wrong_usage(tmp_path: Path, asked: str, says: str) -> None:
    status, out = run(tmp_path, f"--conformance={asked}")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert says in out


def test_a_target_that_cannot_be_loaded_fails_with_what_to_do(tmp_path: Path) -> None:
    status, out = run(tmp_path, f"--conformance={TINY}={TINY}:wright")
    assert status == 1
    assert "did you mean 'right'?" in out
    assert "Traceback" not in out


def test_two_targets(tmp_path: Path) -> None:
    both = [f"--conformance={TINY}={TINY}:{name}" for name in ("lender", "forgetful")]
    status, out = run(tmp_path, *both, "-k", "holds-the-sum", seconds=20)
    assert status == 1
    assert "1 failed, 1 passed" in out
