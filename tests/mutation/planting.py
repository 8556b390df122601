"""Plants one bug in a copy of the project and runs the tests that should notice it."""

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    "examples",
    "reference",
    "jax_engine",
    "pallas_kernels",
    "cpu_kernels",
    "playground",
    "exercises",
    "scripts",
    "tests",
    "docs",
    "pyproject.toml",
)


@dataclass(frozen=True)
class Mutant:
    """A bug to plant.

    Attributes:
        file: Path in the project.
        old: Code that occurs there exactly once.
        new: What stands there instead.
        why: The mistake, in words.
        tests: What should notice: paths in the project, and options of pytest.
    """

    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]

    def apply(self, text: str) -> str:
        """The file's text with the bug in it."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"{self.file}: {self.old!r} occurs {count} times, must be once")
        return text.replace(self.old, self.new)


def plant(file: str, tests: tuple[str, ...], *bugs: tuple[str, str, str]) -> list[Mutant]:
    """Mutants of one file; each bug is (old code, new code, the mistake in words)."""
    return [Mutant(file, old, new, why, tests) for old, new, why in bugs]


class Outcome(Enum):
    CAUGHT = "caught"
    HUNG = "caught (ran past the limit)"
    CRASHED = "caught (the process died)"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN (the tests could not run)"


@dataclass(frozen=True)
class Trial:
    """What became of one planted bug."""

    mutant: Mutant
    outcome: Outcome
    seconds: float
    noticed_by: str


def make_copy(folder: Path) -> None:
    """The parts of the project that tests need, without compiled leftovers."""
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc", ".hypothesis")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignore)
        else:
            shutil.copy(source, folder / name)


def run_tests(
    folder: Path, tests: tuple[str, ...], limit_s: float | None = None
) -> tuple[Outcome, str]:
    """Runs tests of a copy until the first failure; says which test that was."""
    environment = os.environ | {
        "HYPOTHESIS_PROFILE": "mutation",
        "JAX_PLATFORMS": "cpu",
        "PYTHONDONTWRITEBYTECODE": "1",  # edits within one second would meet stale bytecode
        "PYTHONPATH": str(folder),
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no"]
    try:
        done = subprocess.run(
            [*command, *tests],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome.HUNG, ""
    if done.returncode == 0:
        return Outcome.SURVIVED, ""
    if done.returncode < 0:
        return Outcome.CRASHED, f"signal {-done.returncode}"
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - |$)", done.stdout, re.MULTILINE)
    if done.returncode == 1 and failed:  # a fixture that fails has noticed it, too
        return Outcome.CAUGHT, failed[0]
    return Outcome.BROKEN, done.stdout[-1500:] + done.stderr[-500:]


def try_mutant(folder: Path, mutant: Mutant, limit_s: float) -> Trial:
    """Plants the bug in the copy, runs its tests, and mends the copy."""
    path = folder / mutant.file
    original = path.read_text(encoding="utf-8")
    started = time.perf_counter()
    path.write_text(mutant.apply(original), encoding="utf-8")
    try:
        outcome, noticed_by = run_tests(folder, mutant.tests, limit_s)
    finally:
        path.write_text(original, encoding="utf-8")
    return Trial(mutant, outcome, time.perf_counter() - started, noticed_by)
