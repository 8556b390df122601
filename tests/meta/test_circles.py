"""No module or folder of a package imports, by a detour, what imports it."""

from pathlib import Path

import pytest

from tests.meta.trees import PACKAGES, ROOT, imported_names, modules

type Graph = dict[str, set[str]]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(package: str) -> Graph:
    """Which modules of a package each of them names in an import, anywhere in the file."""
    paths = {module_name(path): path for path in modules(package)}
    return {
        name: {found for one in imported_names(path) if (found := nearest(one, paths))} - {name}
        for name, path in paths.items()
    }


def nearest(name: str, known: dict[str, Path]) -> str:
    """The module that a dotted name is of; empty for one of another package."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def of_folders(graph: Graph) -> Graph:
    """The same between the parts of a package: its folders, and the modules beside them.

    The package's own `__init__.py`, which offers all of them, is none.
    """
    found: Graph = {}
    for name, others in graph.items():
        found.setdefault(part(name), set()).update(map(part, others))
    packages = {name for name in found if "." not in name}
    return {
        name: others - {name} - packages for name, others in found.items() if name not in packages
    }


def part(name: str) -> str:
    return ".".join(name.split(".")[:2])


def circles(graph: Graph) -> set[frozenset[str]]:
    """The largest sets of which each member reaches each other one."""
    reached = {name: reachable(graph, name) for name in graph}
    return {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in graph
        if name in reached[name]
    }


def reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    todo = [start]
    while todo:
        new = graph[todo.pop()] - found
        found |= new
        todo += new
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_there_are_no_circles(package: str) -> None:
    graph = imports(package)
    assert circles(graph) | circles(of_folders(graph)) == set()


def test_circles_are_found() -> None:
    graph = {
        "a": {"b"},
        "b": {"c"},
        "c": {"b", "d"},
        "d": set(),
        "e": {"f"},
        "f": {"g"},
        "g": {"e"},
    }
    assert circles(graph) == {frozenset("bc"), frozenset("efg")}
    inside = {"p.one.x": {"p.two.y"}, "p.two.y": set(), "p.two.z": {"p.one.x"}}
    assert circles(inside) == set()
    assert circles(of_folders(inside)) == {frozenset({"p.one", "p.two"})}


def test_imports_inside_of_functions_count() -> None:
    """As do those for a type checker alone: both are of names that a reader must look up."""
    graph = imports("jax_engine")
    assert "jax_engine.operations.numba" in graph["jax_engine.operations.table"]
    assert "jax_engine.models.checkpoints.gguf.gguf_file" in graph["jax_engine.models.model_loader"]
