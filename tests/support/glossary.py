"""The rows of docs/tutorial/glossary.md, and what names they have."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.meta.trees import ROOT

PAGE = ROOT / "docs" / "tutorial" / "glossary.md"
ROW = re.compile(r"^\| \[([^]]+)\]\(([^)]+)\) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
NAME = re.compile(r"`([^`]+)`")


class Term(NamedTuple):
    """A row. `vllm` are the names in 0.33.0, `old` those in 0.2.0, `here` those of this code."""

    term: str
    meaning: str
    vllm: tuple[str, ...]
    old: tuple[str, ...]
    here: tuple[str, ...]
    link: str


def terms() -> list[Term]:
    """In the page's order."""
    found = []
    for term, link, meaning, theirs, here in ROW.findall(PAGE.read_text("utf-8")):
        now, _, then = theirs.partition("0.2.0:")
        names = (tuple(NAME.findall(text)) for text in (now, then, here))
        found.append(Term(term, meaning, *names, link))
    return found


def identifiers(source: str) -> Iterator[str]:
    """What a file defines: classes, functions, arguments, and whatever is assigned to."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
