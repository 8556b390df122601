"""Axes, curves and legends of plots, on linear and logarithmic axes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from scripts.figures.svg import FAINT, Drawing

NUM_INKS = 5
DASHES = ("", "7 3", "2 3")  # of further curves, when the colours are used up
Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """Maps values to units of a drawing.

    Attributes:
        ticks: Values with a label; the axis runs from the first to the last.
        start, end: Where it begins and ends in the drawing.
        logarithmic: Equal ratios are equally far apart; ticks must be above zero.
    """

    ticks: Sequence[float]
    start: float
    end: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        if self.logarithmic:
            low, high, value = log10(low), log10(high), log10(value)
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)


def round_ticks(highest: float) -> list[float]:
    """Round numbers from 0 to one that is not below the highest, four to seven of them."""
    power = 10.0 ** floor(log10(highest / 4))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor * 6 >= highest)
    return [step * i for i in range(ceil(highest / step - 1e-9) + 1)]


def decades(values: Iterable[float]) -> list[float]:
    """Powers of ten around the values, two at least."""
    values = list(values)
    low = floor(log10(min(values)) + 1e-9)
    high = max(ceil(log10(max(values)) - 1e-9), low + 1)
    return [10.0**power for power in range(low, high + 1)]


def draw_axes(
    picture: Drawing, x: Axis, y: Axis, labels: tuple[str, str, str], *, grid: bool = False
) -> None:
    """Both axes with their numbers.

    Args:
        labels: Above the plot, below the x axis, at the head of the y axis.
        grid: Draw a line at each tick.
    """
    title, x_label, y_label = labels
    middle = (x.start + x.end) / 2
    picture.text(middle, y.end - 26, title)
    for value in x.ticks[1:] if grid else ():
        picture.line([(x.at(value), y.start), (x.at(value), y.end)], FAINT, width=0.4)
    for value in y.ticks[1:] if grid else ():
        picture.line([(x.start, y.at(value)), (x.end, y.at(value))], FAINT, width=0.4)
    picture.line([(x.start, y.end), (x.start, y.start), (x.end, y.start)], FAINT)
    for value in x.ticks:
        picture.text(x.at(value), y.start + 13, short(value))
    for value in y.ticks:
        picture.text(x.start - 5, y.at(value), short(value), anchor="end")
    picture.text(middle, y.start + 31, x_label)
    picture.text(x.start + 6, y.end - 10, y_label, anchor="start", ink=FAINT)


def draw_curve(
    picture: Drawing, x: Axis, y: Axis, points: Iterable[Point], number: int, *, dots: bool = False
) -> None:
    """One curve; its number decides the colour."""
    ends = [(x.at(a), y.at(b)) for a, b in points]
    picture.line(ends, ink(number), dash=_dash(number))
    for end in ends if dots else ():
        picture.dot(*end, ink(number))


def draw_legend(picture: Drawing, names: Sequence[str], places: Iterable[Point]) -> None:
    """A short line and a name for each curve."""
    for number, (name, (x, y)) in enumerate(zip(names, places, strict=True)):
        picture.line([(x, y), (x + 18, y)], ink(number), dash=_dash(number))
        picture.text(x + 23, y, name, anchor="start")


def ink(number: int) -> str:
    return f"line-{number % NUM_INKS + 1}"


def _dash(number: int) -> str:
    return DASHES[number // NUM_INKS % len(DASHES)]


def short(value: float) -> str:
    """A tick's label."""
    for scale, unit in ((1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:.3g}{unit}"
    return f"{value:.3g}"
