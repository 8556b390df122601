"""Curves of benchmarks/results/paper.json, the paper's evaluation: `paper-12`, `paper-14`, ..."""

import json
from itertools import pairwise
from math import ceil, floor, log2, log10
from pathlib import Path
from typing import Any

from scripts.figures.svg import FAINT, Drawing

RESULT = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "paper.json"
WIDTH, HEIGHT, GAP = 310.0, 230.0, 20.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 300.0, 40.0, 178.0  # of the axes, in a panel
HIGHEST_LATENCY = 1.0  # s a token, where the paper's axes end, too
Point = tuple[float, float]


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
        _panel(picture, x, y, panel, names)
    for i, name in enumerate(names):
        x, y = 8 + i * (width - 8) / len(names), rows * HEIGHT + 15
        picture.line([(x, y), (x + 18, y)], _ink(i))
        picture.text(x + 23, y, name, anchor="start", size=11)
    return picture


def _ink(i: int) -> str:
    return f"line-{i % 5 + 1}"


def _panel(picture: Drawing, x: float, y: float, panel: dict[str, Any], names: list[str]) -> None:
    """Axes, and a line for each series."""
    series = {
        name: [(float(a), b) for a, b in points.items()] for name, points in panel["series"].items()
    }
    doubling = panel["x"] == "block size"
    xs = [a for points in series.values() for a, _ in points]
    highest = max(b for points in series.values() for _, b in points)
    if "latency" in panel["y"]:
        highest = min(highest, HIGHEST_LATENCY)
        series = {name: _cut(points, highest) for name, points in series.items()}
        xs = [a for points in series.values() for a, _ in points]
    x_ticks = sorted(set(xs)) if doubling else _ticks(max(xs))
    y_ticks = _ticks(highest)
    highest = y_ticks[-1]
    low, high = (log2(min(xs)), log2(max(xs))) if doubling else (0.0, x_ticks[-1])

    def at(point: Point) -> Point:
        share = ((log2(point[0]) if doubling else point[0]) - low) / (high - low)
        up = point[1] / highest
        return round(x + LEFT + share * (RIGHT - LEFT), 1), round(
            y + BOTTOM - up * (BOTTOM - TOP), 1
        )

    picture.text(x + (LEFT + RIGHT) / 2, y + 14, panel["title"])
    bottom, top = y + BOTTOM, y + TOP
    picture.line([(x + LEFT, top), (x + LEFT, bottom), (x + RIGHT, bottom)], FAINT)
    for value in x_ticks:
        picture.text(at((value, 0))[0], bottom + 12, f"{value:.3g}", size=10)
    for value in y_ticks:
        picture.text(x + LEFT - 5, at((xs[0], value))[1], f"{value:.3g}", anchor="end", size=10)
    picture.text(x + (LEFT + RIGHT) / 2, bottom + 30, panel["x"], size=11)
    picture.text(x + LEFT + 6, top - 10, panel["y"], anchor="start", size=10, ink=FAINT)
    for name, points in series.items():
        picture.line([at(point) for point in points], _ink(names.index(name)))


def _ticks(highest: float) -> list[float]:
    """Round numbers from 0 to one that is not below the highest, four to seven of them."""
    power = 10.0 ** floor(log10(highest / 4))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor * 6 >= highest)
    return [step * i for i in range(ceil(highest / step - 1e-9) + 1)]


def _cut(points: list[Point], highest: float) -> list[Point]:
    """The curve as far as it is below the highest value, ending there."""
    kept = [points[0]]
    for (x1, y1), (x2, y2) in pairwise(points):
        if y2 > highest:
            return [*kept, (x1 + (x2 - x1) * (highest - y1) / (y2 - y1), highest)]
        kept.append((x2, y2))
    return kept
