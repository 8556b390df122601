"""Results on disk after every measurement, so that a run that is cut off leaves what it had."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import machine, now, versions


class Record:
    """The results of one run, in `NAME.json` and, as tables, in `NAME.md`.

    Args:
        command: As it was typed.
        empty: The parts of the results, before anything was measured.
        tables: Makes Markdown of the results.
        add: Keep what the files hold already.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        command: str,
        empty: dict[str, Any],
        tables: Callable[[dict[str, Any]], str],
        *,
        add: bool = False,
    ):
        folder.mkdir(parents=True, exist_ok=True)
        self.json_file, self.table_file = folder / f"{name}.json", folder / f"{name}.md"
        self.tables = tables
        self.started = time.perf_counter()
        self.content: dict[str, Any] = {
            "date": now(),
            "command": command,
            "machine": machine(),
            "versions": versions(),
            **empty,
        }
        if add and self.json_file.exists():
            before = json.loads(self.json_file.read_text("utf-8"))
            self.content |= {key: before[key] for key in empty}
        self.content["skipped"] = []

    def put(self, key: str, value: Any) -> None:
        """Replace a part of the results."""
        self.content[key] = value
        self.save()

    def skip(self, what: str, why: str) -> None:
        """Say by name what was not measured."""
        self.content["skipped"].append({"what": what, "why": why})
        self.say(f"skipped {what}: {why}")
        self.save()

    def say(self, what: str) -> None:
        """A line of progress."""
        print(f"{self.elapsed():5.0f} s  {what}", flush=True)

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    def save(self) -> None:
        """Write both files."""
        self.content["elapsed_s"] = round(self.elapsed(), 1)
        self.json_file.write_text(json.dumps(self.content, indent=1) + "\n", "utf-8")
        self.table_file.write_text(self.tables(self.content), "utf-8")


def skipped_lines(content: dict[str, Any]) -> list[str]:
    """Markdown of what was not measured."""
    if not content["skipped"]:
        return []
    lines = [f"- {skipped['what']}: {skipped['why']}" for skipped in content["skipped"]]
    return ["", "## Not measured", "", *lines]
