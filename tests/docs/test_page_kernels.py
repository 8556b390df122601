"""Kernels that pages write out: they lower for a GPU as they stand there.

Lowering is what JAX does without a GPU's compiler: to Triton's language, or to Mosaic's. `make aot`
compiles the same programs to machine code (`page_kernels`).
"""

import dataclasses
import os
import re
import subprocess
import sys
from typing import Any

import jax
import pytest

from pallas_kernels.aot.compiling import Program, array
from pallas_kernels.aot.targets import TARGETS
from tests.docs import page_kernels
from tests.meta.trees import ROOT


def lowered(program: Program, target: str) -> str:
    """For a GPU that is only described."""
    gpu = TARGETS[target]
    known = {"device_kind": gpu.device_kind, "num_cores": gpu.sms, "platform": "gpu"}
    kind: Any = jax.sharding.AbstractDevice
    names = {one.name for one in dataclasses.fields(kind)}
    device = kind(**{name: value for name, value in known.items() if name in names})
    mesh = jax.sharding.AbstractMesh((), (), abstract_device=device)
    with jax.sharding.use_abstract_mesh(mesh):
        traced = jax.jit(program.function).trace(*program.arguments)
        return str(traced.lower(lowering_platforms=("cuda",)).as_text())


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
def test_the_kernel_of_the_page_on_triton_lowers() -> None:
    text = lowered(page_kernels.triton(), "a100")
    assert "triton" in text and 'name = "decode"' in text
    assert "num_stages = 3" in text and "num_warps = 4" in text


def test_the_kernel_of_the_page_on_mosaic_lowers() -> None:
    text = lowered(page_kernels.mosaic(), "h100")
    assert "mosaic_gpu" in text
    assert all(name in text for name in ("wgmma", "mbarrier", "tma"))


def test_what_a_device_refuses_does_not_lower() -> None:
    """Or the tests above could not fail."""
    program = page_kernels.mosaic()
    short = (array((2, 7, 64, 60), "bfloat16"), *program.arguments[1:])
    with pytest.raises(ValueError, match=r"\(64, 60\)"):
        lowered(dataclasses.replace(program, arguments=short), "h100")


def test_each_page_has_its_case() -> None:
    assert [*page_kernels.cases(TARGETS["a100"])] == ["page/triton-line-by-line"]
    assert len(page_kernels.cases(TARGETS["h100"])) == 2


ADD = (ROOT / "docs" / "tutorial" / "add-a-kernel.md").read_text("utf-8")
RUNS = re.findall(r"python -m pytest (tests/kernels --kernel [\w.:]+)\n", ADD)
ENDS = re.findall(r"^((?:\d+ failed, )?\d+ passed, \d+ skipped)$", ADD, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "end"), zip(RUNS, ENDS, strict=True))
def test_the_suite_ends_as_the_page_says(arguments: str, end: str) -> None:
    command = [sys.executable, "-m", "pytest", *arguments.split(), "-n0", "-q"]
    few = os.environ | {"HYPOTHESIS_PROFILE": "few"}
    done = subprocess.run(command, cwd=ROOT, env=few, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1].startswith(f"{end}, "), done.stdout[-2000:]


def test_the_page_runs_the_suite_on_its_three_kernels() -> None:
    assert [one.rpartition(" ")[2] for one in RUNS] == [
        "examples.own_kernel:first_try",
        "examples.own_kernel:paged_attention",
        "examples.own_pallas_kernel:paged_attention",
    ]
