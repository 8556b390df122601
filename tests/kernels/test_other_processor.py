"""Kernels as they are compiled for other processors than this one.

With AVX-512, or with instructions for bfloat16, other code runs than without. Any x86-64 machine of
the last ten years can run what is compiled for AVX2, so that both are tried on a new one.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from cpu_kernels.compiling.jit import processor_has
from tests.meta.trees import ROOT
from tests.support.processors import HASWELL

# The first bytes of an object file, and where it names its processor: AArch64's number there.
ELF, MACH_O = (b"\x7fELF", 18, 183), (b"\xcf\xfa\xed\xfe", 4, 0x0C)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="features are those of x86-64")
@pytest.mark.skipif(not processor_has("avx512f"), reason="this processor is an older one")
@pytest.mark.slow
def test_with_avx2_alone() -> None:
    here = Path(__file__).parent
    names = (
        "test_linear.py", "test_gated_linear.py", "test_grouped_linear.py",
        "test_quantized_linear.py", "test_quantized_groups.py", "test_w8a8.py",
        "test_w8a8_gated.py", "test_norms.py", "test_draw.py", "test_numba.py",
    )  # fmt: skip
    files = [str(here / name) for name in names]
    command = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", *files]
    profile = os.environ.get("HYPOTHESIS_PROFILE", "few")
    env = os.environ | HASWELL | {"HYPOTHESIS_PROFILE": profile}
    ended = subprocess.run(command, env=env, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-3000:]
    assert " passed" in ended.stdout


@pytest.mark.slow
def test_kernels_compile_for_arm(tmp_path: Path) -> None:
    """On Linux and on macOS; what LLVM has no instructions for would end it. Nothing is run."""
    plain = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "+sse2"}
    command = [sys.executable, "-m", "tests.kernels.cross_compile", str(tmp_path)]
    ended = subprocess.run(
        command, cwd=ROOT, env=os.environ | plain, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    folders = [folder for triple in tmp_path.iterdir() for folder in triple.iterdir()]
    assert {folder.name for folder in folders} == {"generic", "neoverse-v1", "apple-m1"}
    for folder in folders:
        magic, place, number = MACH_O if folder.name == "apple-m1" else ELF
        compiled = {file.name: file.read_bytes() for file in folder.iterdir()}
        handlers = [name for name in compiled if name.endswith("handler.o")]
        assert len(handlers) == 18, sorted(compiled)
        for name, code in compiled.items():
            assert code.startswith(magic) and code[place] == number, (folder, name)
