"""A MkDocs hook: puts into the built site what docs/javascripts/oracle.js needs to run the oracle.

`oracle/files.json` has the Python files that pages run. (Those that need NumPy are there, too, and
are never imported; kernels need JAX, and are left out.) `oracle/pyodide/` is Python for the
browser. Where that cannot be had, the pages say so, and the build goes on.
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.pyodide_core import NoCore, fetched, unpack

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("reference", "playground", "exercises", "scripts/tutorial")
HAS = "const PYTHON = true"
logger = logging.getLogger("mkdocs.hooks.oracle")


def files() -> Iterator[Path]:
    """Relative to the repository, in order."""
    for folder in FOLDERS:
        yield from sorted(
            path.relative_to(ROOT)
            for path in (ROOT / folder).rglob("*")
            if path.suffix in (".py", ".json")
            and not {"quantization", "kernels"}.intersection(path.parts)
        )


def on_post_build(config: Any, **_: Any) -> None:
    """Called by MkDocs behind the last page."""
    folder = Path(config["site_dir"]) / "oracle"
    folder.mkdir(parents=True, exist_ok=True)
    texts = {path.as_posix(): (ROOT / path).read_text("utf-8") for path in files()}
    (folder / "files.json").write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8")
    try:
        unpack(fetched(), folder / "pyodide")
    except NoCore as reason:
        logger.info("the site has no Python: %s", reason)
        _say_so(folder.with_name("javascripts") / "oracle.js")


def _say_so(script: Path) -> None:
    """Pages then do not offer what they cannot do."""
    text = script.read_text("utf-8")
    assert HAS in text, script
    script.write_text(text.replace(HAS, "const PYTHON = false"), encoding="utf-8")
