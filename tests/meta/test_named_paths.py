"""A file that is renamed keeps its old name elsewhere: what commands and pages name must exist."""

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.meta.trees import ROOT, tracked_files

NAMED_IN = [
    *sorted((ROOT / ".ci").iterdir()),
    *(ROOT / name for name in ("Makefile", "CONTRIBUTING.md", "pyproject.toml")),
]
FOLDERS = (
    "tests|reference|jax_engine|pallas_kernels|cpu_kernels|benchmarks|scripts|docs|examples"
    r"|exercises|playground|\.ci"
)
WORD = r"[\w.*-]+"
# A path in a folder of the repository, or a file at its root; not the end of another path.
PATH = re.compile(
    rf"(?<![\w./~$-])(?:\$repository)?/?((?:{FOLDERS})(?:/{WORD})+|{WORD}\.(?:md|toml|txt|yml))"
)
PLACEHOLDER = "NAME"


def named_paths(text: str) -> list[str]:
    """What looks like a path in this repository, in the order of the text."""
    return [name.rstrip(".") for name in PATH.findall(text) if PLACEHOLDER not in name]


@pytest.mark.parametrize("path", NAMED_IN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_path_that_is_named_exists(path: Path) -> None:
    """A pattern, as git has them: `*` stands for any number of folders, too."""
    files = [file.relative_to(ROOT).as_posix() for file in tracked_files()]
    names = named_paths(path.read_text("utf-8"))
    for pattern in (name for name in names if "*" in name):
        assert any(fnmatch(file, pattern) for file in files), pattern
    assert [name for name in names if "*" not in name and not (ROOT / name).exists()] == []


def test_paths_are_found_in_the_text() -> None:
    text = "run tests/kernels/test_ffi.py with /constraints.txt, 'tests/*fuzz*.py', $OUT/docs/a."
    names = ["tests/kernels/test_ffi.py", "constraints.txt", "tests/*fuzz*.py"]
    assert named_paths(text) == names
    assert named_paths('python "$repository/scripts/a.py" .') == ["scripts/a.py"]


def test_each_of_the_files_names_some() -> None:
    """A renamed file of tests once failed in `.ci/lowest` only when CI came to it."""
    found = {path.name: named_paths(path.read_text("utf-8")) for path in NAMED_IN}
    assert "tests/kernels/test_norms.py" in found["lowest"]
    assert all(found.values())
