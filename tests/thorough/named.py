"""Which tests name which invariant: read from names, docstrings and classes of tests/*/test_*.py.

A test names an invariant in its name (`test_i25_...`) or its docstring; a state machine anywhere in
its class; a module in its docstring or that of a function that is no test, which goes for all of
its tests, unless one of them names the invariant itself.
"""

import ast
import re
from pathlib import Path

from tests.meta.trees import ROOT, modules

INVARIANT = re.compile(r"\bI(\d{1,2})(?:\s*[-–]\s*I?(\d{1,2})\b|\s+to\s+I(\d{1,2})\b)?")
IN_NAME = re.compile(r"(?<=_)i(\d{1,2})(?=_)")
Named = dict[int, set[str]]


def numbers(text: str) -> set[int]:
    """The invariants a text names: `I13`, or a range such as `I1-I9` and `I1 to I9`."""
    found: set[int] = set()
    for first, last, other in INVARIANT.findall(text):
        found.update(range(int(first), int(last or other or first) + 1))
    return found


def named() -> Named:
    """By invariant the tests that name it, as `path::test`, or `path` of a whole module."""
    found: Named = {}
    for path in modules("tests"):
        if path.name.startswith("test_") and path.parent.name != "meta":
            for number, tests in _named_in(path).items():
                found.setdefault(number, set()).update(tests)
    return found


def _named_in(path: Path) -> Named:
    file, text = path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
    tree = ast.parse(text)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    found: Named = {}
    of_module = numbers(ast.get_docstring(tree) or "")
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            own = numbers(ast.get_docstring(node) or "")
            if not node.name.startswith("test_"):
                of_module |= own
                continue
            name, own = node.name, own | {int(one) for one in IN_NAME.findall(node.name)}
        elif (machine := _machine(node)) is not None:
            name, own = machine[0], _numbers_of_class(machine[1], classes, text)
        else:
            continue
        for number in own:
            found.setdefault(number, set()).add(f"{file}::{name}")
    return {number: {file} for number in of_module} | found


def _machine(node: ast.stmt) -> tuple[str, str] | None:
    """The names of the test and of its class in `TestPair = Pair.TestCase`."""
    match node:
        case ast.Assign(
            targets=[ast.Name(test)], value=ast.Attribute(ast.Name(machine), "TestCase")
        ):
            return test, machine
    return None


def _numbers_of_class(name: str, classes: dict[str, ast.ClassDef], text: str) -> set[int]:
    """Those of a state machine and of its bases in the same module."""
    if name not in classes:
        return set()
    node = classes[name]
    found = numbers(ast.get_source_segment(text, node) or "")
    for base in node.bases:
        found |= _numbers_of_class(getattr(base, "id", ""), classes, text)
    return found
