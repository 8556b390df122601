"""Curves of benchmarks/results/replicas.json: goodput by the router's rule (`replicas`).

`replicas-narrow` has the panels below one another, for a phone.
"""

import json
from pathlib import Path
from typing import Any

from scripts.figures.plot import Axis, draw_axes, draw_curve, draw_legend, round_ticks
from scripts.figures.svg import PHONE, Drawing

RESULT = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "replicas.json"
TITLE = "Goodput of a replica by the router's rule, simulated"
WIDTH, HEIGHT, GAP = float(PHONE), 240.0, 12.0
LEFT, RIGHT, TOP, BOTTOM = 48.0, 342.0, 40.0, 188.0  # of the axes, in a panel
LEGEND, LINE = 112.0, 20.0  # width and height of a name in the legend
PANELS = (
    ("by_replicas", "by replicas, 1.5 turns a second each", "replicas", True),
    ("by_rate", "by load, 10 replicas", "turns a second and replica", False),
)


def draw() -> dict[str, Drawing]:
    """Side by side, and below one another."""
    result = json.loads(RESULT.read_text("utf-8"))["result"]
    return {"replicas": _drawing(result, 2), "replicas-narrow": _drawing(result, 1)}


def _drawing(result: dict[str, Any], columns: int) -> Drawing:
    rows = len(PANELS) // columns
    width = columns * WIDTH + (columns - 1) * GAP
    picture = Drawing(width, rows * HEIGHT + LINE * (3 - columns) + 2, TITLE)
    for i, panel in enumerate(PANELS):
        left, top = i % columns * (WIDTH + GAP), i // columns * HEIGHT
        _panel(picture, left, top, result[panel[0]], panel)
    names = list(result["by_replicas"])
    in_a_row = 2 * columns
    start = (width - LEGEND * in_a_row) / 2
    places = [
        (start + LEGEND * (i % in_a_row), rows * HEIGHT + 8 + LINE * (i // in_a_row))
        for i in range(len(names))
    ]
    draw_legend(picture, names, places)
    return picture


def _panel(
    picture: Drawing,
    left: float,
    top: float,
    curves: dict[str, Any],
    panel: tuple[str, str, str, bool],
) -> None:
    _, title, x_label, logarithmic = panel
    series = {
        name: sorted((float(x), found["goodput_per_s"]) for x, found in points.items())
        for name, points in curves.items()
    }
    sizes = [x for x, _ in next(iter(series.values()))]
    highest = max(y for points in series.values() for _, y in points)
    ticks = sizes if logarithmic else round_ticks(max(sizes))
    x = Axis(ticks, left + LEFT, left + RIGHT, logarithmic)
    y = Axis(round_ticks(highest), top + BOTTOM, top + TOP)
    draw_axes(picture, x, y, (title, x_label, "good answers a second and replica"))
    for number, points in enumerate(series.values()):
        draw_curve(picture, x, y, points, number, dots=True)
