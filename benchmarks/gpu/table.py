"""The results on a card as Markdown: steps, limits, what was predicted, kernels, engine, peers."""

import json
from typing import Any

from benchmarks.gpu.engine.table import engine_lines
from benchmarks.gpu.predicted import SEPARATOR
from benchmarks.markdown import Column, named, table, words


def tables(content: dict[str, Any]) -> str:
    """All of it."""
    machine, versions = content["machine"], content["versions"]
    device = ", ".join(machine.get("devices", ["a machine that said nothing of itself"]))
    told = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    lines = [f"# Measured on {device}", "", f"`{content['command']}`, {content['date']}; {told}."]
    lines += ["", *_card(content["card"]), "", _steps(content["steps"])]
    lines += ["", _predicted(content)]
    lines += ["", *_peers(content["peers"]), "", *engine_lines(content["models"])]
    for title in ("tests", "errors", "sanitizer"):
        lines += ["", f"## {title}", ""]
        lines += [f"- {name}: {said}" for name, said in content[title].items()]
    lines += _rows(content["rows"])
    if content["skipped"]:
        lines += ["", "## Not measured", ""]
        lines += [f"- {skipped['what']}: {skipped['why']}" for skipped in content["skipped"]]
    return "\n".join(lines) + "\n"


def _card(card: dict[str, float]) -> list[str]:
    if not card:
        return ["The card's limits were not measured."]
    return [
        f"Measured limits of this card: read {card['read_bytes_per_s'] / 1e9:,.0f} GB/s, copy "
        f"{card['copy_bytes_per_s'] / 1e9:,.0f} GB/s, bfloat16 matrix product "
        f"{card['matrix_flops_per_s'] / 1e12:,.1f} TFLOP/s."
    ]


def _steps(steps: dict[str, Any]) -> str:
    columns = [
        words("step"),
        Column("seconds", lambda row: row.get("seconds")),
        Column("limit", lambda row: row.get("limit_s")),
        words("", "status"),
    ]
    return table(columns, named(steps))


def _predicted(content: dict[str, Any]) -> str:
    """Each prediction beside what was measured in its place."""
    columns = [
        words("figure"),
        Column("predicted", "value"),
        Column("measured", lambda row: measured(content, row["name"])),
        words("because", "why"),
    ]
    return table(columns, named(content["predicted"]))


def measured(content: dict[str, Any], path: str) -> Any:
    """The figure at a path of the results (`predicted.by_path`); empty if there is none."""
    place: Any = content
    for key in path.split(SEPARATOR):
        place = place.get(key, "") if isinstance(place, dict) else ""
    return place


def _peers(peers: dict[str, Any]) -> list[str]:
    return [f"- {name}: {json.dumps(found)}" for name, found in peers.items()]


def _rows(rows: list[dict[str, Any]]) -> list[str]:
    columns = [
        words("shape", "shape"),
        words("method", "method"),
        Column("predicted us", "predicted_us"),
        Column("measured us", "us"),
        Column("% of limit", "percent_of_limit"),
    ]
    lines = []
    for part in dict.fromkeys(row["part"] for row in rows):
        own = [row for row in rows if row["part"] == part]
        lines += ["", f"## {part}", "", table(columns, own)]
    return lines
