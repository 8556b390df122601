"""A few SVG elements, enough for boxes, arrows and labels.

Colours are CSS variables of docs/stylesheets/figures.css, so that one file suits light and dark.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from zlib import crc32

INK, FAINT, PAPER, FREE = "ink", "faint", "paper", "free"
HEAD = "head"  # of arrows
PHONE = 358  # pixels of a page's text on a phone: no wider, and no figure with text of 12 scrolls


def colour(name: str) -> str:
    return f"var(--figure-{name})"


@dataclass
class Drawing:
    """Elements on a canvas of width x height units, drawn in order.

    Attributes:
        title: What a screen reader says.
        style: CSS of its own, for a figure that is shown where our style sheet is not.
    """

    width: float
    height: float
    title: str
    style: str = ""
    elements: list[str] = field(default_factory=list)

    def box(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        text: str = "",
        fill: str = FREE,
        size: float = 12,
    ) -> None:
        """A rectangle with its text in the middle."""
        self.elements.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="2" '
            f'fill="{colour(fill)}" stroke="{colour(FAINT)}"/>'
        )
        if text:
            self.text(x + w / 2, y + h / 2, text, size=size)

    def row(
        self, x: float, y: float, w: float, h: float, texts: Sequence[str], fill: str = FREE
    ) -> None:
        """Boxes side by side, each w wide."""
        for i, text in enumerate(texts):
            self.box(x + i * w, y, w, h, text, fill)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "middle",
        size: float = 12,
        ink: str = INK,
    ) -> None:
        """One line, its middle at y."""
        self.elements.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" dominant-baseline="central" '
            f'font-size="{size:g}" fill="{colour(ink)}">{escape(text)}</text>'
        )

    def arrow(self, x1: float, y1: float, x2: float, y2: float, ink: str = INK) -> None:
        self.elements.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour(ink)}" '
            f'marker-end="url(#{HEAD})"/>'
        )

    def line(
        self,
        points: Sequence[tuple[float, float]],
        ink: str = INK,
        *,
        width: float = 2,
        dash: str = "",
    ) -> None:
        """Straight from point to point; `dash` as in SVG's `stroke-dasharray`."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.elements.append(
            f'<polyline points="{path}" fill="none" stroke="{colour(ink)}" '
            f'stroke-width="{width:g}"{dashed}/>'
        )

    def dot(self, x: float, y: float, ink: str = INK) -> None:
        self.elements.append(f'<circle cx="{x:g}" cy="{y:g}" r="3" fill="{colour(ink)}"/>')

    def ring(self, x: float, y: float, ink: str = INK) -> None:
        """A circle that is not filled."""
        self.elements.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="4.5" fill="none" stroke="{colour(ink)}" '
            'stroke-width="1.6"/>'
        )

    def svg(self) -> str:
        """No blank lines: Markdown would end the HTML block there.

        On a wide screen a figure grows by no more than 1.3, so its text stays near that of the
        page; on a phone it shrinks to the screen, so a width of 400 or less stays readable.
        Arrows' heads have an id of their own: one in a hidden drawing would not be shown.
        """
        own = f"{HEAD}-{crc32(''.join(self.elements).encode()):x}"
        head = (
            f'<defs><marker id="{HEAD}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" '
            f'fill="{colour(INK)}"/></marker></defs>'
        )
        return (
            "\n".join(
                [
                    f'<svg xmlns="http://www.w3.org/2000/svg" role="img" '
                    f'viewBox="0 0 {self.width:g} {self.height:g}" font-family="inherit" '
                    f'style="max-width: {1.3 * self.width:g}px; margin: auto">',
                    f"<title>{escape(self.title)}</title>",
                    *([f"<style>{self.style}</style>"] if self.style else []),
                    *([head] if any(f"url(#{HEAD})" in one for one in self.elements) else []),
                    *self.elements,
                    "</svg>",
                    "",
                ]
            )
            .replace(f"#{HEAD})", f"#{own})")
            .replace(f'id="{HEAD}"', f'id="{own}"')
        )
