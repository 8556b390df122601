"""Curves of benchmarks/results/curves.json: `cost-host_time`, `cost-admission`, ...

Each has a narrow drawing, too, with its legend below.
"""

import json
from pathlib import Path
from typing import Any

from scripts.figures.plot import Axis, Point, decades, draw_axes, draw_curve, draw_legend
from scripts.figures.svg import FAINT, PHONE, Drawing

RESULT = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "curves.json"
WIDTH, HEIGHT = 640.0, 330.0
LEFT, RIGHT, TOP, BOTTOM = 50.0, 400.0, 44.0, 284.0  # of the axes
NARROW = 340.0  # where the axes of the narrow one end
LEGEND, ROW = 414.0, 20.0  # where it begins, and the height of its lines


def draw() -> dict[str, Drawing]:
    """A drawing for each curve."""
    found = json.loads(RESULT.read_text("utf-8"))["result"]
    wide = {f"cost-{name}": draw_costs(curve) for name, curve in found.items()}
    return wide | {
        f"cost-{name}-narrow": draw_costs(curve, narrow=True) for name, curve in found.items()
    }


def draw_costs(curve: dict[str, Any], *, narrow: bool = False) -> Drawing:
    """Costs by size, on logarithmic axes; costs of zero cannot be shown."""
    series = {
        name: [(float(size), cost) for size, cost in line["points"].items() if cost > 0]
        for name, line in curve["series"].items()
    }
    points = [point for line in series.values() for point in line]
    right = NARROW if narrow else RIGHT
    x = Axis(decades(size for size, _ in points), LEFT, right, logarithmic=True)
    y = Axis(decades(cost for _, cost in points), BOTTOM, TOP, logarithmic=True)
    left, top = (8.0, HEIGHT + 8) if narrow else (LEGEND, TOP + 10)
    places = [(left, top + ROW * i) for i in range(len(series) + 1)]
    height = places[-1][1] + 12 if narrow else HEIGHT
    picture = Drawing(PHONE if narrow else WIDTH, height, curve["title"])
    draw_axes(picture, x, y, (curve["title"], curve["size"], curve["cost"]), grid=True)
    for number, line in enumerate(series.values()):
        draw_curve(picture, x, y, line, number, dots=True)
    draw_legend(picture, list(series), places[:-1])
    if any(line["expected"] == "O(n)" for line in curve["series"].values()):
        _draw_guide(picture, x, y, places[-1] if narrow else (LEGEND, BOTTOM))
    return picture


def _draw_guide(picture: Drawing, x: Axis, y: Axis, place: Point) -> None:
    """A line of slope one through the middle: what is parallel to it is proportional."""
    ratio = (y.ticks[0] * y.ticks[-1] / (x.ticks[0] * x.ticks[-1])) ** 0.5
    sizes = (max(x.ticks[0], y.ticks[0] / ratio), min(x.ticks[-1], y.ticks[-1] / ratio))
    picture.line([(x.at(size), y.at(size * ratio)) for size in sizes], FAINT, width=1.5, dash="3 3")
    left, middle = place
    picture.line([(left, middle), (left + 18, middle)], FAINT, width=1.5, dash="3 3")
    picture.text(left + 23, middle, "proportional (slope 1)", anchor="start")
