"""A reproduced figure: its numbers beside the paper's, its curves, what was assumed."""

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["simulated", "measured", "arithmetic"]


@dataclass
class Row:
    """One number of a figure.

    Attributes:
        paper: The paper's number; None where it gives none.
        read_off: The paper's number is read off a plot, by eye.
    """

    what: str
    ours: float
    unit: str
    paper: float | None = None
    read_off: bool = False

    @property
    def distance_percent(self) -> float | None:
        """How far ours is above the paper's."""
        return None if not self.paper else 100 * (self.ours / self.paper - 1)

    def line(self) -> str:
        """For the terminal. Without a number here, the paper may still give one in its claims."""
        ours = f"  {self.what:<52} {self.ours:>9.4g} {self.unit}"
        if self.paper is None:
            return ours
        about = "≈" if self.read_off else " "
        line = f"{ours:<76} paper {about}{self.paper:<8.4g}"
        distance = self.distance_percent
        return line.rstrip() if distance is None else f"{line} {distance:+6.1f} %"


@dataclass
class Panel:
    """Curves that share their axes: points (x to y) by name."""

    title: str
    x: str
    y: str
    series: dict[str, dict[float, float]]


@dataclass
class Figure:
    """All that is said about one figure or table of the paper.

    Attributes:
        source: Where in the paper.
        claims: What the paper says in words, where it is no number of a row.
    """

    title: str
    source: str
    kind: Kind
    assumptions: list[str]
    rows: list[Row]
    panels: list[Panel] = field(default_factory=list)
    claims: str = ""

    def text(self, name: str) -> str:
        """For the terminal."""
        lines = [f"\n{name}: {self.title} ({self.source}) [{self.kind}]"]
        lines += [row.line() for row in self.rows]
        lines += [f"  paper: {self.claims}"] if self.claims else []
        return "\n".join([*lines, *(f"  * {assumption}" for assumption in self.assumptions)])

    def result(self) -> dict[str, Any]:
        """As it is saved, numbers to four digits."""
        rows = [
            {
                "what": row.what,
                "ours": rounded(row.ours),
                "unit": row.unit,
                "paper": row.paper,
                "read_off": row.read_off,
                "distance_percent": _one_digit(row.distance_percent),
            }
            for row in self.rows
        ]
        panels = [
            {
                "title": panel.title,
                "x": panel.x,
                "y": panel.y,
                "series": {
                    name: {f"{x:.4g}": rounded(y) for x, y in sorted(points.items())}
                    for name, points in panel.series.items()
                },
            }
            for panel in self.panels
        ]
        kept = {key: vars(self)[key] for key in ("title", "source", "kind", "claims")}
        return kept | {"assumptions": self.assumptions, "rows": rows, "panels": panels}


def rounded(value: float) -> float:
    """Four digits: nothing here is known better."""
    return float(f"{value:.4g}")


def _one_digit(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
