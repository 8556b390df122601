"""The kernels that pages write out, as programs to compile for a GPU without having one.

make aot AOT_ARGS="--cases tests.docs.page_kernels --only 'page/*'"
"""

import re
from collections.abc import Callable
from typing import Any

from pallas_kernels.aot.compiling import Program, array
from pallas_kernels.aot.targets import Target
from tests.meta.trees import ROOT

CELL = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUICK = ("page/*",)


def defined(page: str, name: str) -> dict[str, Any]:
    """What the cell of a page defines that has `def name(`."""
    text = (ROOT / "docs" / "tutorial" / f"{page}.md").read_text("utf-8")
    (cell,) = (one for one in CELL.findall(text) if f"def {name}(" in one)
    namespace: dict[str, Any] = {}
    exec(compile(cell, page, "exec"), namespace)
    return namespace


def triton() -> Program:
    """Two sequences, six query heads on two KV heads."""
    attend = defined("triton-line-by-line", "decode")["attend"]
    cache = array((2, 10, 2, 8, 16), "float32")
    return Program(
        lambda *arrays: attend(*arrays, interpret=False),
        (array((2, 6, 16), "float32"), cache, array((2, 6)), array((2,))),
    )


def mosaic() -> Program:
    """Two sequences of up to seven blocks."""
    weighted = defined("mosaic-line-by-line", "weighted")["weighted"]
    weights, pool = array((2, 7, 64, 64), "bfloat16"), array((12, 64, 64), "bfloat16")
    return Program(weighted(2), (weights, pool, array((2, 7)), array((2,))))


def cases(target: Target) -> dict[str, Callable[[], Program]]:
    """By name; Mosaic's needs a Hopper GPU."""
    found = {"page/triton-line-by-line": triton}
    if "mosaic" in target.backends:
        found["page/mosaic-line-by-line"] = mosaic
    return found
