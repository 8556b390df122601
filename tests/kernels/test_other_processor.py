"""Kernels as they are compiled for an older processor than this one.

With AVX-512, or with instructions for bfloat16, other code runs than without. Any x86-64 machine of
the last ten years can run what is compiled for AVX2, so that both are tried on a new one.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from pallas_kernels.numba.jit import processor_has

OLDER = "+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="features are those of x86-64")
@pytest.mark.skipif(not processor_has("avx512f"), reason="this processor is an older one")
def test_with_avx2_alone() -> None:
    here = Path(__file__).parent
    names = (
        "test_linear.py",
        "test_gated_linear.py",
        "test_rms_norm.py",
        "test_draw.py",
        "test_numba.py",
    )
    files = [str(here / name) for name in names]
    older = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": OLDER}
    command = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", *files]
    ended = subprocess.run(command, env=os.environ | older, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-3000:]
    assert " passed" in ended.stdout
