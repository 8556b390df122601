"""Curves of benchmarks/results/paper.json, the paper's evaluation: `paper-12`, `paper-14`, ...

Of what has several panels there is a narrow drawing, too (`paper-12-narrow`), for a phone.
"""

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
from scripts.figures.svg import PHONE, Drawing

RESULT = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "paper.json"
NOTES = {
    "12": ("dotted: the rate where the paper's curve", "bends, read off its plot"),
    "15": ("rings: the paper's numbers; of ShareGPT,", "the ends of its ranges"),
    "18b": ("bars: the block sizes that the paper calls good,", "of ShareGPT and of Alpaca"),
}
WIDTH, HEIGHT, GAP = float(PHONE), 240.0, 12.0
LEFT, RIGHT, TOP, BOTTOM = 48.0, 342.0, 40.0, 188.0  # of the axes, in a panel
LEGEND, LINE = 170.0, 20.0  # width and height of a name in the legend
GOOD = re.compile(r"(.+): (?:smallest|largest) good block")  # a row of Figure 18b
OUTPUTS = re.compile(r"(.+), (.+), (\d+) outputs")  # a row of Figure 15: dataset, panel, outputs
HIGHEST_LATENCY = 1.0  # s a token, where the paper's axes end, too


def draw() -> dict[str, Drawing]:
    """A drawing for each figure with curves, and a narrow one where its panels are side by side."""
    found = json.loads(RESULT.read_text("utf-8"))["result"]
    drawings = {}
    for key, figure in found.items():
        if figure["panels"]:
            drawings[f"paper-{key}"] = _figure(key, figure, min(2, len(figure["panels"])))
        if len(figure["panels"]) > 1:
            drawings[f"paper-{key}-narrow"] = _figure(key, figure, 1)
    return drawings


def _figure(key: str, figure: dict[str, Any], columns: int) -> Drawing:
    """Panels in columns, and a legend for all of them."""
    panels = figure["panels"]
    names = list(dict.fromkeys(name for panel in panels for name in panel["series"]))
    width = columns * WIDTH + (columns - 1) * GAP
    picture = Drawing(width, 0, f"{figure['title']} ({figure['kind']})")
    for i, panel in enumerate(panels):
        x, y = i % columns * (WIDTH + GAP), i // columns * HEIGHT
        _panel(picture, x, y, panel, names, figure["rows"])
    y = ceil(len(panels) / columns) * HEIGHT + 10
    in_a_row = int(width // LEGEND)
    places = [(8 + i % in_a_row * LEGEND, y + i // in_a_row * LINE) for i in range(len(names))]
    draw_legend(picture, names, places)
    y = places[-1][1]
    for line in _lines(NOTES.get(key, ()), columns):
        y += LINE
        picture.text(width / 2, y, line)
    picture.height = y + 12
    return picture


def _lines(note: tuple[str, ...], columns: int) -> tuple[str, ...]:
    return note if columns == 1 or not note else (" ".join(note),)


def _panel(
    picture: Drawing,
    left: float,
    top: float,
    panel: dict[str, Any],
    names: list[str],
    rows: list[dict[str, Any]],
) -> None:
    """Axes, a line for each series, and over it what the rows know of the paper's."""
    known = _of_the_paper(rows, panel)
    series = {
        name: [(float(a), b) for a, b in points.items()] for name, points in panel["series"].items()
    }
    sizes = sorted({a for points in series.values() for a, _ in points})
    highest = max(b for points in series.values() for _, b in points)
    if "latency" in panel["y"]:
        highest = min(highest, HIGHEST_LATENCY)
        series = {name: _cut(points, highest) for name, points in series.items()}
    highest = max([highest, *(b for points in known.values() for _, b in points if b is not None)])
    doubling = panel["x"] == "block size"
    ticks = sizes if doubling else round_ticks(max(a for one in series.values() for a, _ in one))
    x = Axis(ticks, left + LEFT, left + RIGHT, doubling)
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
    for name, (least, most) in _good_blocks(rows, panel).items():
        height = y.end + 12 + 10 * names.index(name)
        picture.line([(x.at(least), height), (x.at(most), height)], ink(names.index(name)), width=5)


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


def _good_blocks(rows: list[dict[str, Any]], panel: dict[str, Any]) -> dict[str, list[float]]:
    """By series, the smallest and the largest block that the paper calls good."""
    found: dict[str, list[float]] = {}
    for row in rows:
        good = GOOD.fullmatch(row["what"])
        if good and good[1] in panel["series"] and row["paper"] is not None:
            found.setdefault(good[1], []).append(row["paper"])
    return found


def _cut(points: list[Point], highest: float) -> list[Point]:
    """The curve where it is below the highest value: from where it first is, to where it leaves."""
    kept = [point for point in points[:1] if point[1] <= highest]
    for (x1, y1), (x2, y2) in pairwise(points):
        if (y1 > highest) != (y2 > highest):
            kept.append((x1 + (x2 - x1) * (highest - y1) / (y2 - y1), highest))
        if y2 <= highest:
            kept.append((x2, y2))
        elif kept:
            break
    return kept
