"""What the tests of the repository itself look at: its files, and the imports of each module."""

import ast
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("reference", "jax_engine", "pallas_kernels", "cpu_kernels", "paged_conformance")


def tracked_files() -> list[Path]:
    """The files git knows of and that are still there; all files outside a checkout (an sdist)."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listing.returncode == 0 and listing.stdout:
        paths = [ROOT / name for name in listing.stdout.decode().split("\0") if name]
    else:
        paths = [p for p in ROOT.rglob("*") if "/." not in p.as_posix().removeprefix(str(ROOT))]
    return [path for path in paths if path.is_file()]


def modules(folder: str) -> list[Path]:
    """Every Python file under `folder`, except compiled leftovers."""
    return sorted(p for p in (ROOT / folder).rglob("*.py") if "__pycache__" not in p.parts)


def imported_names(path: Path) -> set[str]:
    """Dotted names a file imports anywhere in it, also inside functions.

    `from a.b import c` counts as `a.b.c` (and so as everything it starts with); a relative import
    is resolved against the file's own package.
    """
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            names.update(f"{module}.{alias.name}" for alias in node.names)
    return names
