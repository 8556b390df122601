"""An exercise as the page shows it: what a reader writes of its file, and the rest."""

import html
import json
from pathlib import Path
from typing import Any

from scripts.cells_in_pages import WITH_NUMPY, outside_of

ROOT = Path(__file__).resolve().parents[1]
IMPORTS = "from exercises.checking import"
LAST_IMPORT = "from exercises.variants import"
MAIN = "raise SystemExit(not check(seed=given_seed()))"
IN_PAGE = "check(seed=given_seed())"  # a page has no exit status
BEHIND = ("\nAnswer = ", "\nclass Numbers(", "\ndef check(")


def parts(name: str) -> dict[str, Any]:
    """`before`: its imports; `code`: what is given and what the reader writes; `behind`: the check.

    `numpy` says whether it needs NumPy.

    Raises:
        LookupError: The file has no such parts; the build fails.
    """
    text = (ROOT / "exercises" / f"{name}.py").read_text("utf-8")
    check = min((text.find(one) for one in BEHIND if one in text), default=-1)
    first, last = text.find(IMPORTS), text.find(LAST_IMPORT)
    start = text.find("\n", last) + 1
    if min(first, last, check) < 0:
        raise LookupError(f"exercises/{name}.py has no line {IMPORTS!r}, or no check")
    return {
        "name": name,
        "before": text[:start],
        "code": text[start:check].strip("\n") + "\n",
        "behind": text[check:].replace(MAIN, IN_PAGE).strip("\n") + "\n",
        "numpy": bool(outside_of(f"exercises.{name}") & WITH_NUMPY),
    }


def exercise(name: str) -> str:
    """For docs/javascripts/exercises.js."""
    data = html.escape(json.dumps(parts(name)))
    note = "<noscript>Without JavaScript, do it in the folder of the repository.</noscript>"
    return f'<div class="exercise" data-exercise="{data}" markdown="0">{note}</div>'
