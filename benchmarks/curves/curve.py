"""A curve: series of (size, cost), each with its expected order and the exponent measured."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

# The order that is expected, and the largest exponent that still counts as it. Caches that
# overflow and logarithms take a little more than the order says.
ORDERS = {"O(1)": 0.2, "O(n)": 1.2}


@dataclass
class Series:
    """One line of a plot.

    Attributes:
        expected: A key of `ORDERS`: no faster than this.
        points: Cost by size.
    """

    expected: str
    points: dict[int, float] = field(default_factory=dict)

    @property
    def exponent(self) -> float:
        """Slope of the upper half of the points on log-log axes: what growth tends to.

        The lower half is where constant costs hide the growth.
        """
        sizes = sorted(self.points)
        upper = sizes[min(len(sizes) // 2, max(0, len(sizes) - 3)) :]
        if len(upper) < 2:
            return 0.0
        costs = [max(self.points[size], 1e-9) for size in upper]
        return float(np.polyfit(np.log(upper), np.log(costs), 1)[0])


@dataclass
class Curve:
    """One plot.

    Attributes:
        title: What grows with what.
        size, cost: Names of the axes, units included.
        note: How it was measured, in a sentence or two.
        series: By name.
    """

    title: str
    size: str
    cost: str
    note: str
    series: dict[str, Series]

    def result(self) -> dict[str, Any]:
        """As it is saved."""
        series = {
            name: {
                "expected": line.expected,
                "exponent": round(line.exponent, 2),
                "points": {str(size): _rounded(cost) for size, cost in line.points.items()},
            }
            for name, line in self.series.items()
        }
        return {key: vars(self)[key] for key in ("title", "size", "cost", "note")} | {
            "series": series
        }


def _rounded(cost: float) -> float:
    """Four digits: no measurement here has more."""
    return float(f"{cost:.4g}")
