"""The classes in the annotations of functions, and the files that define them, by syntax alone.

A name is looked up in its module and through the module's imports. What a type alias stands for
counts in its place. The types of a type's fields are not followed.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEFINING = ("jax_engine", "cpu_kernels", "pallas_kernels")

type Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def tree_of(file: str) -> ast.Module:
    """The syntax tree of a file of the repository."""
    return ast.parse((ROOT / file).read_text("utf-8"))


def types_of(file: str, function: Function) -> set[tuple[str, str]]:
    """(file, class) of each class of the packages in the annotations of a function of a file."""
    return set().union(*(_definitions(file, name) for name in _annotated(function)))


def _annotated(function: Function) -> Iterator[str]:
    """The dotted names in the annotations of a function, and of what is in it."""
    for node in ast.walk(function):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield from _names(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield from _names(node.returns)


def _names(annotation: ast.expr) -> Iterator[str]:
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name | ast.Attribute):
            yield ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:  # a name in quotes; or the shape of an array, which is none
                yield from _names(ast.parse(node.value, mode="eval").body)
            except SyntaxError:
                continue


@functools.cache
def _definitions(file: str, name: str) -> frozenset[tuple[str, str]]:
    """(file, class) of each class that a dotted name in a file stands for; none for others'."""
    first, _, rest = name.partition(".")
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return frozenset({(file, name)})
        if isinstance(node, ast.TypeAlias) and node.name.id == name:
            return _all_of(file, node.value)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return _all_of(file, node.value)
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                if (one.asname or one.name) == first:
                    return _imported(f"{node.module}.{one.name}" + (f".{rest}" if rest else ""))
    return frozenset()


def _all_of(file: str, value: ast.expr) -> frozenset[tuple[str, str]]:
    return frozenset().union(*(_definitions(file, one) for one in _names(value)))


def _imported(dotted: str) -> frozenset[tuple[str, str]]:
    """As `_definitions`, of "package.module.Class"."""
    module, _, name = dotted.rpartition(".")
    if module.split(".")[0] not in DEFINING:
        return frozenset()
    path = module.replace(".", "/")
    for file in (f"{path}.py", f"{path}/__init__.py"):
        if (ROOT / file).exists():
            return _definitions(file, name)
    return frozenset()
