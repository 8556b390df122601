"""Curves of benchmarks/results/curves.json: `cost-host_time`, `cost-admission`, ..."""

import json
from pathlib import Path
from typing import Any

from scripts.figures.plot import Axis, decades, draw_axes, draw_curve, draw_legend
from scripts.figures.svg import FAINT, Drawing

RESULT = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "curves.json"
WIDTH, HEIGHT = 640.0, 330.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 410.0, 44.0, 284.0  # of the axes
LEGEND, ROW = 426.0, 19.0  # where it begins, and the height of its lines


def draw() -> dict[str, Drawing]:
    """A drawing for each curve."""
    found = json.loads(RESULT.read_text("utf-8"))["result"]
    return {f"cost-{name}": draw_costs(curve) for name, curve in found.items()}


def draw_costs(curve: dict[str, Any]) -> Drawing:
    """Costs by size, on logarithmic axes; costs of zero cannot be shown."""
    series = {
        name: [(float(size), cost) for size, cost in line["points"].items() if cost > 0]
        for name, line in curve["series"].items()
    }
    points = [point for line in series.values() for point in line]
    x = Axis(decades(size for size, _ in points), LEFT, RIGHT, logarithmic=True)
    y = Axis(decades(cost for _, cost in points), BOTTOM, TOP, logarithmic=True)
    picture = Drawing(WIDTH, HEIGHT, curve["title"])
    draw_axes(picture, x, y, (curve["title"], curve["size"], curve["cost"]), grid=True)
    for number, line in enumerate(series.values()):
        draw_curve(picture, x, y, line, number, dots=True)
    draw_legend(picture, list(series), [(LEGEND, TOP + 10 + ROW * i) for i in range(len(series))])
    if any(line["expected"] == "O(n)" for line in curve["series"].values()):
        _draw_guide(picture, x, y)
    return picture


def _draw_guide(picture: Drawing, x: Axis, y: Axis) -> None:
    """A line of slope one through the middle: what is parallel to it is proportional."""
    ratio = (y.ticks[0] * y.ticks[-1] / (x.ticks[0] * x.ticks[-1])) ** 0.5
    sizes = (max(x.ticks[0], y.ticks[0] / ratio), min(x.ticks[-1], y.ticks[-1] / ratio))
    picture.line([(x.at(size), y.at(size * ratio)) for size in sizes], FAINT, width=1, dash="1 4")
    picture.line([(LEGEND, BOTTOM), (LEGEND + 18, BOTTOM)], FAINT, width=1, dash="1 4")
    picture.text(LEGEND + 23, BOTTOM, "proportional (slope 1)", anchor="start", size=11)
