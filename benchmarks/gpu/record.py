"""Results on disk after every measurement, so that a run that is cut off leaves what it had."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import now

EMPTY: dict[str, Any] = {
    "machine": {}, "versions": {}, "steps": {}, "predicted": {}, "card": {}, "tests": {},
    "errors": {}, "rows": [], "models": {}, "peers": {}, "sanitizer": {}, "skipped": [],
}  # fmt: skip


class Record:
    """The results of a card, in `NAME.json` and, as tables, in `NAME.md`.

    Args:
        command: As it was typed.
        tables: Makes Markdown of the results.
        add: Keep what the file holds already; a new measurement replaces an old one of its name.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        command: str,
        tables: Callable[[dict[str, Any]], str],
        *,
        add: bool = False,
    ):
        folder.mkdir(parents=True, exist_ok=True)
        self.json_file, self.table_file = folder / f"{name}.json", folder / f"{name}.md"
        self.tables = tables
        self.started = time.perf_counter()
        self.content: dict[str, Any] = {"date": now(), "command": command}
        self.content |= json.loads(json.dumps(EMPTY))
        if add and self.json_file.exists():
            before = json.loads(self.json_file.read_text("utf-8"))
            self.content |= {key: before[key] for key in EMPTY if key in before}

    def take(self, said: dict[str, Any]) -> None:
        """One line of a step (`benchmarks.gpu.said`)."""
        if "put" in said:
            self.put(said["put"], said["value"])
        elif "row" in said:
            self._add_row(said["row"])
        else:
            self.skip(said["skip"], said["why"])

    def put(self, path: list[str], value: Any) -> None:
        """A figure in its place."""
        *outer, last = path
        place = self.content
        for key in outer:
            place = place.setdefault(key, {})
        place[last] = value
        self._say(f"{', '.join(path)}: {json.dumps(value)[:300]}")

    def skip(self, what: str, why: str) -> None:
        """Say by name what was not measured."""
        self.content["skipped"].append({"what": what, "why": why})
        self._say(f"skipped {what}: {why}")

    def _add_row(self, row: dict[str, Any]) -> None:
        name = row["shape"], row["method"]
        others = [one for one in self.content["rows"] if (one["shape"], one["method"]) != name]
        self.content["rows"] = [*others, row]
        share = f"{row['us']} us ({row['percent_of_limit']} % of the limit)"
        self._say(f"{row['part']}: {row['shape']}, {row['method']}: {share}")

    def _say(self, what: str) -> None:
        """A line of progress, and the files anew."""
        print(f"{self.elapsed():5.0f} s  {what}", flush=True)
        self.save()

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    def save(self) -> None:
        """Writes both files."""
        self.content["elapsed_s"] = round(self.elapsed(), 1)
        self.json_file.write_text(json.dumps(self.content, indent=1) + "\n", "utf-8")
        self.table_file.write_text(self.tables(self.content), "utf-8")
