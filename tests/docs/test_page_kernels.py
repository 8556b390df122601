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
import numpy as np
import pytest

from examples import own_kernel
from paged_conformance.kernel.cases import make_case, poisoned
from paged_conformance.kernel.expected import assert_agrees
from paged_conformance.kernel.functions import JaxFunction
from paged_conformance.kernel.sizes import Sizes
from pallas_kernels.aot.compiling import Program, array
from pallas_kernels.aot.targets import TARGETS
from scripts.docs_hooks import source_of
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
SOURCE = re.compile(r"^\{\{ source (\S+) (\S+) \}\}$", re.MULTILINE)
SIZES = Sizes(tokens=8, seqs=3, context=48, layers=2)
ENDS = re.findall(r"^((?:\d+ failed, )?\d+ passed, \d+ skipped)$", ADD, re.MULTILINE)


def file_of_the_page() -> str:
    """What a reader writes who follows *Add a kernel*: its imports, then the two functions."""
    section = ADD.partition("## The same in Pallas")[2]
    (imports,) = re.findall(r"^```python\n(from functools.*?)^```", section, re.M | re.S)
    shown = SOURCE.findall(section)
    assert [name for _, name in shown] == ["attend_token", "paged_attention"]
    return "\n\n".join([imports, *(source_of(path, name) for path, name in shown)])


@pytest.mark.slow
def test_a_reader_of_add_a_kernel_writes_a_whole_file() -> None:
    """It runs by itself, agrees with the oracle, and does not see what lies behind a context."""
    mine: dict[str, Any] = {}
    exec(compile(file_of_the_page(), "mine.py", "exec"), mine)
    kernel = JaxFunction("mine", mine["paged_attention"], SIZES)
    case = make_case([(1, 37), (3, 5), (0, 0)], 2, (4, 2, 3, 8), SIZES)
    for one in (case, poisoned(case, None, np.nan)):
        assert_agrees(kernel(one, {}), case, {})
    first = JaxFunction("first", own_kernel.first_try, SIZES)
    with pytest.raises(AssertionError):
        assert_agrees(first(poisoned(case, None, np.nan), {}), case, {})


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "end"), [*zip(RUNS, ENDS, strict=True)])
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
