"""Equal bits on other numbers of threads, and with the instructions of an older processor.

Both are fixed when a process starts, so that each has one of its own (`crowd_digest`).
"""

import os
import platform
import subprocess
import sys

import pytest

from cpu_kernels.compiling.jit import processor_has
from tests.meta.trees import ROOT
from tests.support.processors import HASWELL


def digest_of(threads: int, **variables: str) -> str:
    """Digest of what two crowds got, after each was compared with what it gets alone."""
    command = [sys.executable, "-m", "tests.support.crowd_digest", str(threads)]
    ended = subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout.splitlines()[-1]


@pytest.mark.slow
def test_i52_the_number_of_threads_does_not_matter() -> None:
    assert digest_of(1) == digest_of(5)


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="features are those of x86-64")
@pytest.mark.skipif(not processor_has("avx512f"), reason="this processor is an older one")
def test_i52_alone_and_in_company_with_avx2() -> None:
    """Not the bits of a newer processor, and the same ones alone and in company."""
    assert digest_of(2, **HASWELL)
