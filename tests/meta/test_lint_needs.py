"""mypy finds what our files import with the `lint` extra alone, as on a machine that has only it.

An environment with the tests' packages, too, would hide what that extra lacks.
"""

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution, packages_distributions

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.meta.trees import ROOT, imported_names, modules

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT, MYPY = PYPROJECT["project"], PYPROJECT["tool"]["mypy"]
CHECKED = MYPY["files"]


def _with_what_they_need(requirements: Iterable[str]) -> set[str]:
    """The names of the distributions that `requirements` install, those of their own included."""
    left = [Requirement(line) for line in requirements]
    installed: set[str] = set()
    while left:
        name = canonicalize_name(left.pop().name)
        if name not in installed:
            installed.add(name)
            needs = [Requirement(line) for line in distribution(name).requires or ()]
            left += [need for need in needs if not need.marker or need.marker.evaluate()]
    return installed


def _lacking(extras: Iterable[str]) -> set[str]:
    """Modules that the checked files import and that neither the engine nor `extras` install."""
    optional = PROJECT["optional-dependencies"]
    installed = _with_what_they_need(
        [*PROJECT["dependencies"], *(one for name in extras for one in optional[name])]
    )
    skipped = {
        re.sub(r"\.\*$", "", module)
        for rule in MYPY["overrides"]
        if rule.get("ignore_missing_imports")
        for module in rule["module"]
    }
    paths = [path for folder in CHECKED for path in modules(folder)]
    imported = {name.split(".")[0] for path in paths for name in imported_names(path)}
    sources = packages_distributions()
    return {
        module
        for module in imported - skipped - set(CHECKED)
        if not {canonicalize_name(one) for one in sources.get(module, ())} <= installed
    }


def test_lint_installs_what_mypy_reads() -> None:
    assert not _lacking(["lint"])


def test_without_the_extra_something_lacks() -> None:
    """So the test above looks at more than nothing."""
    assert _lacking([]) >= {"hypothesis", "pytest"}
