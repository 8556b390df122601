"""Which test runs which lines: measured once, and again when it, or what it ran, has changed."""

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
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
    """A test that passes, and the lines of each file that it runs.

    Attributes:
        seconds: What it takes after the tests of its file before it.
        first: What the first of its file takes: it makes the fixtures that others share.
        longest: What the longest of its file takes.
        by_chance: Whether it draws examples: what it notices once it may miss another time.
    """

    test: str
    seconds: float
    lines: dict[str, frozenset[int]]
    longest: float
    first: float = 0.0
    by_chance: bool = False

    @property
    def file(self) -> str:
        return self.test.split("::")[0]


def measure(items: list[pytest.Item], at_once: int) -> list[Reach]:
    """What each test reaches, of those that pass; files that were measured are not run again."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    found = {path: _known(path, its) for path, its in files.items()}
    todo = [its for path, its in files.items() if found[path] is None]
    if todo:
        print(f"which lines do the tests of {len(todo)} files run?", flush=True)
    for number, done in enumerate(in_children(todo, _trace, at_once), 1):
        results = {one["test"]: one for one in done.said if isinstance(one, dict)}
        path = done.job[0].path
        print(f"    {number}/{len(todo)} {path.name}, {len(results)} tests", flush=True)
        for item in done.job:
            result = results.setdefault(item.nodeid, {"outcome": done.how})
            if result["outcome"] not in ("passed", "skipped"):
                print(f"    {item.nodeid}: {result['outcome']}: not used", flush=True)
        found[path] = results
        _keep(path, results)
    wanted = {item.nodeid for item in items}
    return [one for known in found.values() for one in _usable(known or {}) if one.test in wanted]


def all_measured() -> Iterator[Reach]:
    """What was measured of all tests, at any time, and still holds."""
    hash_of = cache(_hash)
    for path in KEPT_IN.glob("tests.*.json"):
        known = json.loads(path.read_text("utf-8"))
        if all(hash_of(file) == was for file, was in known["hashes"].items()):
            yield from _usable(known["tests"])


def _trace(items: list[pytest.Item], say: Say) -> None:
    """The tests of a file, one after another: they share fixtures, as they do in any run."""
    lines: dict[str, set[int]] = {}

    def line(code: CodeType, number: int) -> object:
        if code.co_filename.startswith(FOLLOWED):
            lines.setdefault(code.co_filename, set()).add(number)
        return sys.monitoring.DISABLE

    def begins(item: pytest.Item) -> None:
        lines.clear()
        sys.monitoring.restart_events()
        say(item.nodeid, LIMIT_S)

    def ended(item: pytest.Item, outcome: str, seconds: float) -> bool:
        files = {str(Path(name).relative_to(ROOT)): sorted(lines[name]) for name in sorted(lines)}
        result = {"test": item.nodeid, "outcome": outcome, "seconds": round(seconds, 3)}
        by_chance = item.get_closest_marker("hypothesis") is not None
        say(result | {"lines": files, "by_chance": by_chance}, LIMIT_S)
        return False

    sys.monitoring.use_tool_id(TOOL, "mutation")
    sys.monitoring.register_callback(TOOL, sys.monitoring.events.LINE, line)
    sys.monitoring.set_events(TOOL, sys.monitoring.events.LINE)
    run_items(items, begins, ended)


def _usable(tests: dict[str, Any]) -> Iterator[Reach]:
    took = [one.get("seconds", 0.0) for one in tests.values()]
    first, longest = next(iter(took), 0.0), max(took, default=0.0)
    for name, one in tests.items():
        if one["outcome"] == "passed":
            lines = {file: frozenset(numbers) for file, numbers in one["lines"].items()}
            yield Reach(name, one["seconds"], lines, longest, first, one["by_chance"])


def _kept_at(path: Path) -> Path:
    return KEPT_IN / f"{path.relative_to(ROOT).as_posix().replace('/', '.')}.json"


def _known(path: Path, items: list[pytest.Item]) -> dict[str, Any] | None:
    """What was measured of a test file; None if it, or code that it ran, is another now."""
    kept = _kept_at(path)
    if not kept.exists():
        return None
    known: dict[str, Any] = json.loads(kept.read_text("utf-8"))
    same = all(_hash(file) == was for file, was in known["hashes"].items())
    tests: dict[str, Any] = known["tests"]
    return tests if same and all(item.nodeid in tests for item in items) else None


def _keep(path: Path, tests: dict[str, Any]) -> None:
    KEPT_IN.mkdir(exist_ok=True)
    files = {path.relative_to(ROOT).as_posix()}
    for result in tests.values():
        files.update(result.get("lines", ()))
    known = {"hashes": {file: _hash(file) for file in sorted(files)}, "tests": tests}
    _kept_at(path).write_text(json.dumps(known), "utf-8")


def _hash(file: str) -> str:
    path = ROOT / file
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
