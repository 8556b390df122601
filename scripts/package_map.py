"""The map of the code: a line for each file, which is its docstring's first sentence.

>>> print(package_map("playground").splitlines()[3])
| `breaks.py` | Faults that a reader can plant, each a few lines over the oracle's own classes. |
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REGISTRIES = ("jax_engine/models/families",)
"""Folders of files that are alike; a page of their own lists them."""


def package_map(folder: str) -> str:
    """A table of the modules of a folder, and then of each folder below it under its name.

    Raises:
        ValueError: a module has no docstring; the build of the site fails.
    """
    rows, inside = ["| file | is about |", "|---|---|"], ROOT / folder
    for path in modules(folder):
        if path.parent != inside:
            inside = path.parent
            rows.append(f"| **{inside.relative_to(ROOT).as_posix()}** | |")
        rows.append(f"| `{path.name}` | {about(path)} |")
    return "\n".join(rows)


def modules(folder: str) -> list[Path]:
    """The modules that have a row. A package's `__init__` has none where it is empty."""
    found = sorted((ROOT / folder).rglob("*.py"), key=lambda path: (path.parent, path.name))
    return [path for path in found if not _left_out(path)]


def about(path: Path) -> str:
    """The first sentence of a module's docstring, or of its first paragraph what there is."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    if text is None:
        raise ValueError(f"{path.relative_to(ROOT)} has no docstring")
    paragraph = " ".join(text.split("\n\n")[0].split())
    sentence = re.match(r".*?\.(?= [A-Z`]|$)", paragraph)
    words = sentence[0] if sentence else paragraph
    return words.removesuffix(":").replace("|", "\\|")


def _left_out(path: Path) -> bool:
    inside = path.relative_to(ROOT).as_posix()
    listed_elsewhere = any(inside.startswith(f"{one}/") for one in REGISTRIES)
    return listed_elsewhere or (path.name == "__init__.py" and not path.read_text("utf-8").strip())
