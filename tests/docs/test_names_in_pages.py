"""Names of this engine's functions, settings and metrics in pages that compare it with vLLM."""

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.meta.trees import ROOT

TUTORIAL = ROOT / "docs" / "tutorial"


@cache
def defined() -> frozenset[str]:
    """The functions, classes and methods of the engine, methods as `Class.method`."""
    found = set()
    for path in (ROOT / "jax_engine").rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            found |= {name for name in names(node)}
    return frozenset(found)


def names(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    if isinstance(node, ast.ClassDef):
        for one in node.body:
            if isinstance(one, ast.FunctionDef):
                yield f"{node.name}.{one.name}"


def last_column(page: str) -> list[str]:
    """What stands in code in the last cell of each row of the page's tables."""
    rows = re.findall(r"^\|.*\| (.*) \|$", (TUTORIAL / page).read_text("utf-8"), re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]


def test_functions_of_the_walk_down_exist() -> None:
    found = set(last_column("from-generate-down.md"))
    assert len(found) > 15
    assert found - defined() == set()
