"""A small line plot on two logarithmic axes, as SVG; it follows the reader's light or dark mode."""

import math
from collections.abc import Mapping
from html import escape

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 74, 500, 44, 344  # of the axes
LEGEND = 520  # where its text begins
ROW = 19  # height of a line of the legend

# Readable on white and on near-black alike; with more series than colours the lines are dashed.
COLOURS = ("#2f7ed8", "#e0701a", "#2e9e5b", "#d1477a", "#8a63d2", "#1b9aaa")
DASHES = ("none", "7 3", "2 3")
STYLE = """
svg { color: #24292f } .card { fill: #ffffff }
@media (prefers-color-scheme: dark) { svg { color: #d7dce2 } .card { fill: #1c2128 } }
text { fill: currentColor; font: 13px system-ui, sans-serif }
text.title { font-weight: 600 }
.grid { stroke: currentColor; stroke-opacity: .16 } .axis { stroke: currentColor }
.guide { stroke: currentColor; stroke-opacity: .55; stroke-dasharray: 1 4 }
.line { fill: none; stroke-width: 2 }
"""


class Axis:
    """Numbers to pixels along one logarithmic axis, from one power of ten to another."""

    def __init__(self, values: list[float], start: float, end: float) -> None:
        self.low = math.floor(math.log10(min(values)) + 1e-9)
        self.high = max(math.ceil(math.log10(max(values)) - 1e-9), self.low + 1)
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def log_log_plot(
    title: str, size: str, cost: str, series: Mapping[str, Mapping[float, float]], *, guide: bool
) -> str:
    """The SVG's text.

    Args:
        size, cost: Names of the axes.
        series: Points (size to cost) by name; what is not above zero cannot be shown.
        guide: Draw a dotted line of slope one: what is parallel to it is proportional.
    """
    shown = {n: {x: y for x, y in p.items() if y > 0} for n, p in series.items()}
    xs = Axis([x for points in shown.values() for x in points], LEFT, RIGHT)
    ys = Axis([y for points in shown.values() for y in points.values()], BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect class="card" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
        _text((LEFT + RIGHT) / 2, 26, title, "middle", "title"),
        *_axes(xs, ys, size, cost),
    ]
    if guide:
        parts += _guide(xs, ys)
    for row, (name, points) in enumerate(shown.items()):
        colour, dash = COLOURS[row % len(COLOURS)], DASHES[row // len(COLOURS) % len(DASHES)]
        parts += _line([(xs.at(x), ys.at(y)) for x, y in points.items()], colour, dash)
        middle = TOP + 10 + row * ROW
        parts += _line([(LEGEND, middle), (LEGEND + 24, middle)], colour, dash)
        parts.append(_text(LEGEND + 34, middle + 4, name))
    return "\n".join([*parts, "</svg>\n"])


def _axes(xs: Axis, ys: Axis, size: str, cost: str) -> list[str]:
    parts = []
    for x in xs.ticks():
        parts.append(_segment("grid", xs.at(x), TOP, xs.at(x), BOTTOM))
        parts.append(_text(xs.at(x), BOTTOM + 18, _number(x), "middle"))
    for y in ys.ticks():
        parts.append(_segment("grid", LEFT, ys.at(y), RIGHT, ys.at(y)))
        parts.append(_text(LEFT - 8, ys.at(y) + 4, _number(y), "end"))
    parts.append(_segment("axis", LEFT, BOTTOM, RIGHT, BOTTOM))
    parts.append(_segment("axis", LEFT, TOP, LEFT, BOTTOM))
    parts.append(_text((LEFT + RIGHT) / 2, BOTTOM + 42, size, "middle"))
    turned = _text(0, 0, cost, "middle")
    middle = (TOP + BOTTOM) / 2
    return [*parts, f'<g transform="translate(18 {middle}) rotate(-90)">{turned}</g>']


def _guide(xs: Axis, ys: Axis) -> list[str]:
    """Slope one through the middle of the plot, as far as the axes reach."""
    middle = (ys.low + ys.high) / 2 - (xs.low + xs.high) / 2
    first, last = max(xs.low, ys.low - middle), min(xs.high, ys.high - middle)
    ends = [(xs.at(10**x), ys.at(10 ** (x + middle))) for x in (first, last)]
    label = _text(LEGEND + 34, BOTTOM - 2, "proportional (slope 1)")
    key = _segment("guide", LEGEND, BOTTOM - 6, LEGEND + 24, BOTTOM - 6)
    return [_segment("guide", *ends[0], *ends[1]), key, label]


def _line(points: list[tuple[float, float]], colour: str, dash: str) -> list[str]:
    path = " ".join(f"{x},{y}" for x, y in points)
    line = f'<polyline class="line" stroke="{colour}" stroke-dasharray="{dash}" points="{path}"/>'
    return [line, *(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in points)]


def _segment(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{style}>{escape(text)}</text>'


def _number(value: float) -> str:
    for scale, unit in ((1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:g}{unit}"
    return f"{value:g}"
