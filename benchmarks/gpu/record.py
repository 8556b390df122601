"""Results on disk after every measurement, so that a run that is cut off leaves what it had."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.gpu.shapes import Shape
from benchmarks.report import machine, versions


class Record:
    """The results of one run, in `NAME.json` and, as tables, in `NAME.md`."""

    def __init__(self, folder: Path, name: str, command: str):
        folder.mkdir(parents=True, exist_ok=True)
        self.json_file, self.table_file = folder / f"{name}.json", folder / f"{name}.md"
        self.started = time.perf_counter()
        self.content: dict[str, Any] = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "command": command,
            "machine": machine(),
            "versions": versions(),
            "card": {},
            "tests": {},
            "errors": {},
            "rows": [],
            "skipped": [],
        }

    def put(self, key: str, value: Any) -> None:
        """Replace a part of the results."""
        self.content[key] = value
        self.save()

    def row(self, shape: Shape, method: str, predicted_s: float, timing: dict[str, float]) -> None:
        """Add a measurement of one shape, in microseconds."""
        us = timing["us"]
        row = {
            "part": shape.part,
            "shape": shape.name,
            "method": method,
            "predicted_us": round(predicted_s * 1e6, 2),
            **{key: round(value, 2) for key, value in timing.items()},
            "percent_of_limit": round(100 * predicted_s * 1e6 / us, 1),
            "gb_per_s": round(shape.traffic / us / 1e3, 1),
            "tflop_per_s": round(shape.flops / us / 1e6, 1),
        }
        self.content["rows"].append(row)
        print(f"{self.elapsed():5.0f} s  {shape.part}: {shape.name}, {method}: {us:.1f} us "
              f"({row['percent_of_limit']} % of the limit)", flush=True)  # fmt: skip
        self.save()

    def skip(self, what: str, why: str) -> None:
        """Say by name what was not measured."""
        self.content["skipped"].append({"what": what, "why": why})
        print(f"{self.elapsed():5.0f} s  skipped {what}: {why}", flush=True)
        self.save()

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    def save(self) -> None:
        """Write both files."""
        self.content["elapsed_s"] = round(self.elapsed(), 1)
        self.json_file.write_text(json.dumps(self.content, indent=1) + "\n", "utf-8")
        self.table_file.write_text(tables(self.content), "utf-8")


def tables(content: dict[str, Any]) -> str:
    """The results as Markdown."""
    device = ", ".join(content["machine"]["devices"])
    lines = [
        f"# Attention kernels on {device}",
        "",
        f"`{content['command']}`, {content['date']}",
        "",
    ]
    lines += ["Measured limits of this card: " + _limits(content["card"]), ""]
    lines += [f"- tests: {name}: {result}" for name, result in content["tests"].items()]
    lines += [f"- largest error: {name}: {error}" for name, error in content["errors"].items()]
    parts = dict.fromkeys(row["part"] for row in content["rows"])
    for part in parts:
        rows = [row for row in content["rows"] if row["part"] == part]
        lines += ["", f"## {part}", ""]
        lines += ["| shape | method | predicted us | measured us | one call us | % of limit |"]
        lines += ["|---|---|---:|---:|---:|---:|"]
        lines += [
            f"| {row['shape']} | {row['method']} | {row['predicted_us']} | {row['us']} | "
            f"{row.get('call_us', '')} | {row['percent_of_limit']} |"
            for row in rows
        ]
    if content["skipped"]:
        lines += ["", "## Not measured", ""]
        lines += [f"- {skipped['what']}: {skipped['why']}" for skipped in content["skipped"]]
    return "\n".join(lines) + "\n"


def _limits(card: dict[str, float]) -> str:
    if not card:
        return "not measured"
    return (
        f"copy {card['copy_bytes_per_s'] / 1e9:,.0f} GB/s, bfloat16 matrix product "
        f"{card['matrix_flops_per_s'] / 1e12:,.1f} TFLOP/s"
    )
