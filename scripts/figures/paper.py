"""Curves of benchmarks/results/paper.json, the paper's evaluation: `paper-12`, `paper-14`, ..."""

import json
import re
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

from scripts.figures.plot import (
    Axis,
    Point,
    draw_axes,
    draw_curve,
    draw_legend,
    ink,
    round_ticks,
)
from scripts.figures.svg import Drawing

RESULT = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "paper.json"
NOTES = {
    "Figure 12": "dotted: the rate where the paper's curve bends, read off its plot",
    "Figure 15": "rings: the paper's numbers; of ShareGPT, the ends of its ranges",
}
WIDTH, HEIGHT, GAP = 310.0, 230.0, 20.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 300.0, 40.0, 178.0  # of the axes, in a panel
OUTPUTS = re.compile(r"(.+), (.+), (\d+) outputs")  # a row of Figure 15: dataset, panel, outputs
HIGHEST_LATENCY = 1.0  # s a token, where the paper's axes end, too


def draw() -> dict[str, Drawing]:
    """A drawing for each figure with curves."""
    found = json.loads(RESULT.read_text("utf-8"))["result"]
    return {f"paper-{key}": _figure(figure) for key, figure in found.items() if figure["panels"]}


def _figure(figure: dict[str, Any]) -> Drawing:
    """Panels in two columns, and a legend for all of them."""
    panels = figure["panels"]
    names = list(dict.fromkeys(name for panel in panels for name in panel["series"]))
    columns = min(2, len(panels))
    rows = ceil(len(panels) / columns)
    width = 2 * WIDTH + GAP
    picture = Drawing(width, rows * HEIGHT + 30, f"{figure['title']} ({figure['kind']})")
    left = (width - columns * WIDTH - (columns - 1) * GAP) / 2
    for i, panel in enumerate(panels):
        x, y = left + i % columns * (WIDTH + GAP), i // columns * HEIGHT
        _panel(picture, x, y, panel, names, _of_the_paper(figure["rows"], panel))
    bottom = rows * HEIGHT + 15
    if note := NOTES.get(figure["source"]):
        picture.text(width / 2, bottom + 22, note, size=11)
        picture.height += 20
    places = [(8 + i * (width - 8) / len(names), bottom) for i in range(len(names))]
    draw_legend(picture, names, places)
    return picture


def _panel(
    picture: Drawing,
    left: float,
    top: float,
    panel: dict[str, Any],
    names: list[str],
    known: dict[str, list[tuple[float, float | None]]],
) -> None:
    """Axes, a line for each series, and over it what is `known` of the paper's."""
    series = {
        name: [(float(a), b) for a, b in points.items()] for name, points in panel["series"].items()
    }
    highest = max(b for points in series.values() for _, b in points)
    if "latency" in panel["y"]:
        highest = min(highest, HIGHEST_LATENCY)
        series = {name: _cut(points, highest) for name, points in series.items()}
    highest = max([highest, *(b for points in known.values() for _, b in points if b is not None)])
    xs = sorted({a for points in series.values() for a, _ in points})
    doubling = panel["x"] == "block size"
    x = Axis(xs if doubling else round_ticks(xs[-1]), left + LEFT, left + RIGHT, doubling)
    y = Axis(round_ticks(highest), top + BOTTOM, top + TOP)
    draw_axes(picture, x, y, (panel["title"], panel["x"], panel["y"]))
    for name, points in series.items():
        draw_curve(picture, x, y, points, names.index(name))
        for a, b in known.get(name, ()):
            colour = ink(names.index(name))
            if b is None:
                picture.line([(x.at(a), y.start), (x.at(a), y.end)], colour, width=1.2, dash="2 3")
            else:
                picture.ring(x.at(a), y.at(b), colour)


def _of_the_paper(
    rows: list[dict[str, Any]], panel: dict[str, Any]
) -> dict[str, list[tuple[float, float | None]]]:
    """By series, points of the paper's curves: x and y, or x alone where its curve bends."""
    found: dict[str, list[tuple[float, float | None]]] = {}
    for row in rows:
        title, _, name = row["what"].partition(": ")
        shared = OUTPUTS.fullmatch(row["what"])
        if row["paper"] is None:
            continue
        if title == panel["title"] and name in panel["series"] and row["unit"] == "req/s":
            found.setdefault(name, []).append((row["paper"], None))
        elif shared and shared[2] == panel["title"] and shared[1] in panel["series"]:
            found.setdefault(shared[1], []).append((float(shared[3]), row["paper"]))
    return found


def _cut(points: list[Point], highest: float) -> list[Point]:
    """The curve as far as it is below the highest value, ending there."""
    kept = [points[0]]
    for (x1, y1), (x2, y2) in pairwise(points):
        if y2 > highest:
            return [*kept, (x1 + (x2 - x1) * (highest - y1) / (y2 - y1), highest)]
        kept.append((x2, y2))
    return kept
