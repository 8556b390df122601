"""A MkDocs hook: puts into the built site what docs/javascripts/oracle.js needs to run the oracle.

`oracle/files.json` has the Python files that pages run. (Kernels need JAX, and are left out.)
`oracle/pyodide/` is Python for the browser, and NumPy. Where one of the two cannot be had, the
pages say so, and the build goes on.
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.pyodide_core import NUMPY, PYODIDE, NoCore, fetched, unpack, unpack_numpy

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("reference", "playground", "exercises", "scripts/tutorial")
logger = logging.getLogger("mkdocs.hooks.oracle")


def files() -> Iterator[Path]:
    """Relative to the repository, in order."""
    for folder in FOLDERS:
        yield from sorted(
            path.relative_to(ROOT)
            for path in (ROOT / folder).rglob("*")
            if path.suffix in (".py", ".json") and "kernels" not in path.parts
        )


def on_post_build(config: Any, **_: Any) -> None:
    """Called by MkDocs behind the last page."""
    folder = Path(config["site_dir"]) / "oracle"
    folder.mkdir(parents=True, exist_ok=True)
    texts = {path.as_posix(): (ROOT / path).read_text("utf-8") for path in files()}
    (folder / "files.json").write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8")
    for name, package, unpacked in (
        ("PYTHON", PYODIDE, unpack),
        ("NUMPY", NUMPY, unpack_numpy),
    ):
        try:
            unpacked(fetched(package), folder / "pyodide")
        except NoCore as reason:
            logger.info("the site has no %s: %s", package.name, reason)
            _say_so(folder.with_name("javascripts") / "oracle.js", name)


def _say_so(script: Path, name: str) -> None:
    """Pages then do not offer what they cannot do."""
    text, has = script.read_text("utf-8"), f"const {name} = true"
    assert has in text, script
    script.write_text(text.replace(has, f"const {name} = false"), encoding="utf-8")
