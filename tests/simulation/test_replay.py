"""A seed always does the same: all events, their order and their times."""

import os
import subprocess
import sys

import pytest

from tests.meta.trees import ROOT
from tests.simulation.run import command, run_seed

DRIVEN, THREADS = 3, 9  # one client that drives the engine step by step; threads that share it


@pytest.mark.parametrize("seed", [DRIVEN, THREADS])
def test_a_seed_does_the_same_again(seed) -> None:
    assert run_seed(seed).log.lines == run_seed(seed).log.lines


@pytest.mark.slow
def test_a_seed_does_the_same_in_another_process() -> None:
    """Where sets of strings have another order."""
    done = subprocess.run(
        [sys.executable, *command(THREADS, "stub").split()[1:]],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(run_seed(THREADS).log.digest)
