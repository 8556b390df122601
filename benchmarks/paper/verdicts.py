"""What came of each figure of the paper, misses first: the first table of the page."""

from typing import Any

from benchmarks.paper.tables import number_with_unit
from benchmarks.report import load_result

MAIN = {
    "table1": "OPT-13B, slots",
    "2": "vLLM, tokens",
    "2-measured": "B = 16, tokens",
    "12": "OPT-13B, ShareGPT: vLLM over Orca (Oracle)",
    "13": "ShareGPT, 2 req/s: vLLM",
    "13-measured": "ShareGPT: this engine",
    "14": "beam search, 6 beams: vLLM over Orca (Oracle)",
    "15": "Alpaca, beam search, 6 outputs",
    "15-measured": "beam search, 6 outputs",
    "16": "5-shot, prefix of 341 tokens: vLLM over Orca (Oracle)",
    "17": "vLLM over Orca (Oracle)",
    "18b": "Alpaca: largest good block",
}
"""The number by which each figure stands, of those for which the paper gives any."""
MET, MISSED = 10.0, 100 / 3
"""Percent: met is what is no further off, missed what is further."""
MOST = 2 / 3
VERDICTS = ("missed", "shape only", "met")


def verdict(figure: dict[str, Any], main: str) -> str:
    """ "met" asks it of the main number and of most of all; "missed" is said of the main number."""
    off = {row["what"]: abs(row["distance_percent"]) for row in _known(figure)}
    if off[main] > MISSED:
        return "missed"
    close = sum(distance <= MET for distance in off.values())
    return "met" if off[main] <= MET and close >= MOST * len(off) else "shape only"


def summary() -> str:
    """A row for each figure: its verdict, one number of it, and how far off all of them are."""
    found = load_result("paper")["result"]
    rows = []
    for key, main in MAIN.items():
        if key in found:
            said = verdict(found[key], main)
            rows.append((VERDICTS.index(said), f"| **{said}** {_row(found[key], main)}"))
    head = "| verdict | figure | number | ours | the paper's | distance | all its numbers |"
    lines = [line for _, line in sorted(rows, key=lambda row: row[0])]
    return "\n".join([head, "|---|---|---|---:|---:|---:|---:|", *lines])


def _row(figure: dict[str, Any], main: str) -> str:
    row = next(row for row in figure["rows"] if row["what"] == main)
    ours, papers = (number_with_unit(row[whose], row["unit"]) for whose in ("ours", "paper"))
    about = "≈ " if row["read_off"] else ""
    cells = (
        f"{figure['source']}, {figure['kind']}", main, ours, f"{about}{papers}",
        f"{row['distance_percent'] + 0.0:+.1f} %", _range(figure),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _range(figure: dict[str, Any]) -> str:
    """The least and the greatest distance of a figure's numbers from the paper's."""
    found = [row["distance_percent"] for row in _known(figure)]
    low, high = f"{min(found):+.0f}", f"{max(found):+.0f}"
    return f"{low} %" if low == high else f"{low} to {high} %"


def _known(figure: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in figure["rows"] if row["paper"] is not None]
