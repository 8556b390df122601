"""MkDocs hooks: source code and measurements are put into the pages when they are built.

    {{ source reference/blocks.py BlockManager.fork }}    that function, class or assignment
    {{ measured }}                                         tables of benchmarks/results/*.json
    {{ compared }}                                         those of compare_*.json, engine by engine

So a page never shows code that is not there, nor a figure that nobody measured.
"""

import ast
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = re.compile(r"^\{\{ source (\S+) (\S+) \}\}$", re.MULTILINE)
MEASURED, COMPARED = "{{ measured }}", "{{ compared }}"


def source_of(path: str, name: str) -> str:
    """The text of a definition, by its dotted name in that file.

    Raises:
        LookupError: there is none; the build fails.
    """
    text = (ROOT / path).read_text(encoding="utf-8")
    node: ast.AST = ast.parse(text)
    for part in name.split("."):
        found = [x for x in ast.iter_child_nodes(node) if getattr(x, "name", None) == part]
        if not found:
            raise LookupError(f"{path} defines no {name}")
        node = found[0]
    assert isinstance(node, (ast.FunctionDef, ast.ClassDef))
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    lines = text.splitlines()[first - 1 : node.end_lineno]
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] for line in lines)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for each page."""

    def include(match: re.Match[str]) -> str:
        path, name = match.groups()
        return f'```python title="{path}"\n{source_of(path, name)}\n```'

    markdown = SOURCE.sub(include, markdown)
    if MEASURED in markdown:
        sys.path.insert(0, str(ROOT))
        from benchmarks.tables import detail_tables

        markdown = markdown.replace(MEASURED, detail_tables())
    if COMPARED in markdown:
        sys.path.insert(0, str(ROOT))
        from benchmarks.compare.table import compare_tables

        markdown = markdown.replace(COMPARED, compare_tables())
    return markdown
