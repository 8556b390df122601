"""Which test runs which lines: measured once, and again when it, or what it ran, has changed."""

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.mutation.children import Say, in_children
from tests.mutation.planting import ROOT
from tests.mutation.running import run_items

KEPT_IN = ROOT / ".mutation"
LIMIT_S = 150
FOLLOWED = str(ROOT / "jax_engine") + "/"
TOOL = sys.monitoring.COVERAGE_ID


@dataclass(frozen=True)
class Reach:
    """A test that passes, how long it takes by itself, and the lines of each file that it runs."""

    test: str
    seconds: float
    lines: dict[str, frozenset[int]]


def measure(items: list[pytest.Item], at_once: int) -> list[Reach]:
    """What each test reaches, of those that pass; tests that were measured are not run again."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    known = {path: _known(path) for path in files}
    todo = [
        item
        for path, its in files.items()
        for item in its
        if known[path] is None or item.nodeid not in known[path]["tests"]  # type: ignore[index]
    ]
    found: dict[Path, dict[str, Any]] = {
        path: kept["tests"] if kept else {} for path, kept in known.items()
    }
    if todo:
        print(f"which lines do {len(todo)} tests run?", flush=True)
    for done, child in enumerate(in_children(todo, _trace, at_once), 1):
        said = child.said[-1] if child.said else None
        result = said if isinstance(said, dict) else {"outcome": child.how}
        found[child.job.path][child.job.nodeid] = result
        if result["outcome"] not in ("passed", "skipped"):
            print(f"    {child.job.nodeid}: {result['outcome']}: not used", flush=True)
        print(f"    {done}/{len(todo)}", flush=True)
        if done % 10 == 0 or done == len(todo):
            _keep(found, {item.path for item in todo})
    return list(_usable(found, {item.nodeid for item in items}))


def _trace(item: pytest.Item, say: Say) -> None:
    lines: dict[str, set[int]] = {}

    def line(code: CodeType, number: int) -> object:
        if code.co_filename.startswith(FOLLOWED):
            lines.setdefault(code.co_filename, set()).add(number)
        return sys.monitoring.DISABLE

    def ended(item: pytest.Item, outcome: str, seconds: float) -> bool:
        files = {str(Path(name).relative_to(ROOT)): sorted(lines[name]) for name in sorted(lines)}
        say({"outcome": outcome, "seconds": round(seconds, 3), "lines": files}, 10)
        return True

    sys.monitoring.use_tool_id(TOOL, "mutation")
    sys.monitoring.register_callback(TOOL, sys.monitoring.events.LINE, line)
    sys.monitoring.set_events(TOOL, sys.monitoring.events.LINE)
    run_items([item], lambda item: say(item.nodeid, LIMIT_S), ended)


def _usable(found: dict[Path, dict[str, Any]], wanted: set[str]) -> Iterator[Reach]:
    for tests in found.values():
        for name, result in tests.items():
            if name in wanted and result["outcome"] == "passed":
                lines = {file: frozenset(numbers) for file, numbers in result["lines"].items()}
                yield Reach(name, result["seconds"], lines)


def _kept_at(path: Path) -> Path:
    return KEPT_IN / f"{path.relative_to(ROOT).as_posix().replace('/', '.')}.json"


def _known(path: Path) -> dict[str, Any] | None:
    """What was measured of a test file; None if it, or code that it ran, is another now."""
    kept = _kept_at(path)
    if not kept.exists():
        return None
    known: dict[str, Any] = json.loads(kept.read_text("utf-8"))
    return known if all(_hash(file) == was for file, was in known["hashes"].items()) else None


def _keep(found: dict[Path, dict[str, Any]], paths: Iterable[Path]) -> None:
    KEPT_IN.mkdir(exist_ok=True)
    for path in paths:
        files = {path.relative_to(ROOT).as_posix()}
        for result in found[path].values():
            files.update(result.get("lines", ()))
        known = {"hashes": {file: _hash(file) for file in sorted(files)}, "tests": found[path]}
        _kept_at(path).write_text(json.dumps(known), "utf-8")


def _hash(file: str) -> str:
    path = ROOT / file
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
