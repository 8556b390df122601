"""A MkDocs hook: says of each Python cell of the tutorial what it needs, and which run in the page.

A page is a sequence of cells that share a namespace. A cell needs the earlier ones that define its
names. It runs in the page if they import nothing but the standard library, NumPy, and reference/,
playground/ and exercises/. docs/javascripts/cells.js reads this from a script in the page.
"""

import ast
import builtins
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("reference", "playground", "exercises", "scripts.tutorial")
SAID = {"jax": "JAX", "examples": "this repository's examples"}
WITH_NUMPY = {"numpy", "jaxtyping"}  # a page fetches NumPy when a cell asks for it
BLOCK = re.compile(r"^```python *\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_IN_A_BROWSER = {"subprocess", "threading", "multiprocessing", "socket", "asyncio"}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by MkDocs for each page, before the directives are carried out."""
    if not page.file.src_uri.startswith("tutorial/"):
        return markdown
    found = cells(markdown)
    if not found:
        return markdown
    text = json.dumps(found, ensure_ascii=False).replace("</", r"<\/")
    script = f'<script type="application/json" class="cells">\n{text}\n</script>'
    return f'{markdown}\n\n<div markdown="0">{script}</div>\n'


def cells(markdown: str) -> list[dict[str, Any]]:
    """Each Python block: its code, the code that it needs before, and what it cannot do without.

    `lacks` is what a browser has not, a package's name for example; "" for what runs there.
    `numpy` says whether the cell needs NumPy.
    """
    codes = BLOCK.findall(markdown)
    trees = [ast.parse(code) for code in codes]
    defined = [set(_defined(tree)) for tree in trees]
    found = []
    for number, code in enumerate(codes):
        before = _needed(number, trees, defined)
        modules = {name for i in (*before, number) for name in _imported(trees[i])}
        outside = set[str]().union(*(outside_of(name) for name in modules))
        found.append(
            {
                "code": code.rstrip("\n"),
                "before": "\n".join(codes[i].rstrip("\n") for i in before),
                "cells": len(before),
                "lacks": lacks(outside),
                "numpy": bool(outside & WITH_NUMPY),
            }
        )
    return found


def _needed(number: int, trees: list[ast.Module], defined: list[set[str]]) -> list[int]:
    """The earlier cells that define its names, or change what it uses, and what those need."""
    wanted, needed = set(_used(trees[number])), list[int]()
    state = {name for tree in trees[:number] for name in _assigned(tree)}
    for i in reversed(range(number)):
        used = set(_used(trees[i]))
        if wanted & (defined[i] | used & state):
            needed.insert(0, i)
            wanted |= used
    return needed


def _assigned(tree: ast.Module) -> Iterator[str]:
    """Names of what a later cell may change."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _used(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
            yield node.id


def _defined(tree: ast.Module) -> Iterator[str]:
    yield from _assigned(tree)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def lacks(outside: set[str]) -> str:
    """What a browser has not of these; "" if it has all."""
    missing = sorted(outside - WITH_NUMPY)
    return SAID.get(missing[0], missing[0]) if missing else ""


def outside_of(module: str) -> set[str]:
    """What a module needs from outside, by what it imports: packages, and parts of Python that a
    browser has not."""
    found, seen, todo = set[str](), set[str](), [module]
    while todo:
        name = todo.pop()
        top = name.split(".")[0]
        if name in seen:
            continue
        seen.add(name)
        if name.startswith(FOLDERS):
            todo += _imports_of(name)
        elif top in NOT_IN_A_BROWSER:
            found.add(f"Python's {top}")
        elif top not in sys.stdlib_module_names:
            found.add(top)
    return found


@cache
def _imports_of(module: str) -> list[str]:
    """What a module of this repository imports when it is imported."""
    path = ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not path.exists():  # a name in a module
        return []
    tree = ast.parse(path.read_text("utf-8"))
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return sorted({name for node in imports for name in _imported(node)})
