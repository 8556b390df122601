"""Pages on kernels: each function of the project that a shown excerpt uses is shown or said."""

import ast
import re
from collections.abc import Iterator

import pytest

from scripts.docs_hooks import source_of
from tests.meta.trees import ROOT

SOURCE = re.compile(r"^\{\{ source (\S+) (\S+) \}\}$", re.MULTILINE)
CELL = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROJECT = ("pallas_kernels", "cpu_kernels", "jax_engine", "reference", "examples", "exercises")
PAGES = (
    "tutorial/kernel-ladder",
    "tutorial/attention",
    "tutorial/pallas-line-by-line",
    "tutorial/triton-line-by-line",
    "tutorial/mosaic-line-by-line",
    "tutorial/kernel-puzzles",
    "tutorial/add-a-kernel",
    "tutorial/quantised-weights",
    "tutorial/adapters",
    "tutorial/equal-bits",
    "kernels",
)


class Module:
    """What a file defines, and what it imports from the project."""

    def __init__(self, text: str) -> None:
        body = ast.parse(text).body
        kinds = (ast.FunctionDef, ast.ClassDef)
        self.defined = {node.name for node in body if isinstance(node, kinds)}
        self.methods = {
            one.name
            for node in body
            if isinstance(node, ast.ClassDef)
            for one in node.body
            if isinstance(one, ast.FunctionDef)
        }
        self.imported = set[str]()
        self.modules = set[str]()
        for node in body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PROJECT):
                for alias in node.names:
                    file = ROOT.joinpath(*f"{node.module}.{alias.name}".split("."))
                    is_module = file.with_suffix(".py").exists() or file.is_dir()
                    kept = self.modules if is_module else self.imported
                    kept.add(alias.asname or alias.name)


def without_annotations(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return tree


def used(excerpt: str, module: Module) -> Iterator[str]:
    """Functions, methods and classes of the project that an excerpt uses, but for constants."""
    tree = without_annotations(ast.parse(excerpt))
    inside = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    own = (module.defined | module.imported) - inside
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in own and not node.id.isupper():
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            of_self = node.value.id in ("self", "cls") and node.attr in module.methods
            if (of_self or node.value.id in module.modules) and not node.attr.isupper():
                yield node.attr


def unsaid(page: str) -> set[str]:
    """What the excerpts of a page use, and the page neither shows nor names."""
    shown = SOURCE.findall(page)
    text = SOURCE.sub("", page)
    said = set(re.findall(r"\w+", text)) | {name.split(".")[-1] for _, name in shown}
    found = set[str]()
    for path, name in shown:
        module = Module((ROOT / path).read_text("utf-8"))
        found |= set(used(source_of(path, name), module))
    return found - said


@pytest.mark.parametrize("page", PAGES)
def test_each_name_that_an_excerpt_uses_is_shown_or_said(page: str) -> None:
    assert unsaid((ROOT / "docs" / f"{page}.md").read_text("utf-8")) == set()


def test_a_name_that_is_not_said_is_found() -> None:
    line = "{{ source pallas_kernels/triton/steps.py attend_steps }}\n"
    helpers = {"_positions", "_seen", "_read", "_scores", "_mask", "_blocks", "gather"}
    assert unsaid(line) == helpers
    assert unsaid(line + "`gather` adds tokens") == helpers - {"gather"}
    more = "{{ source pallas_kernels/triton/softmax.py gather }}\n"
    assert unsaid(line + more) == helpers - {"gather"} | {"dot", "State"}
    ring = "{{ source pallas_kernels/mosaic/ring.py Ring.produce }}\n"
    assert unsaid(ring) == {"rem", "barrier_wait"}
