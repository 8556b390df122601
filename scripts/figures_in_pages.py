"""Figures as HTML, with a number and a caption; `{{ ref NAME }}` in a text is a link to one."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from scripts.contents import chapters

DOCS = Path(__file__).resolve().parents[1] / "docs"
DRAWN = re.compile(r"^\{\{ (?:figure (\S+)|(replay|journey)) \}\}$", re.MULTILINE)
STYLE = re.compile(r"<style>.*?</style>\n?", re.DOTALL)
TEXT = 11.92  # pixels, the least: 12, less what makes a figure as wide as a phone's page
NARROW = "-narrow"  # behind the name of the same figure for a phone, where it has one
CAPTIONS = {
    "replay": "Ten scenarios, step by step",
    "journey": "The parts of the system, and a request on its way through them",
}


def figure(name: str, number: str = "") -> str:
    """The figure with its title as caption. Its colours suit light and dark.

    On a phone it has a drawing of its own, if there is one. What is too wide scrolls sideways, and
    says so: no text in it gets smaller than 12 pixels.
    """
    parts, title = [_part(name, "wide")], _title(name)
    if (DOCS / "figures" / f"{name}{NARROW}.svg").exists():
        parts.append(_part(f"{name}{NARROW}", "narrow"))
    kinds = "figure figure--both" if len(parts) > 1 else "figure"
    return (
        f'<figure class="{kinds}" id="figure-{name}" markdown="0">\n{"".join(parts)}'
        f"{_caption(title, number)}</figure>"
    )


def played(name: str, made: str, number: str) -> str:
    """The replay or the journey, with a caption."""
    caption = _caption(CAPTIONS[name], number)
    return f'<figure class="played" id="figure-{name}" markdown="0">\n{made}\n{caption}</figure>'


def _part(name: str, kind: str) -> str:
    svg = STYLE.sub("", _svg(name))  # a README's picture brings its colours; here the page has them
    width = re.search(r'viewBox="0 0 ([\d.]+)', svg)
    assert width is not None, f"{name}.svg has no viewBox"
    smallest = min(map(float, re.findall(r'font-size="([\d.]+)"', svg)), default=12.0)
    least = TEXT / smallest * float(width[1])
    return (
        f'<div class="figure-part figure-{kind}" style="--least: {least:.0f}px">'
        '<span class="figure-scrolls" aria-hidden="true">scroll →</span>'
        f'<div class="figure-scroller">{svg}</div></div>'
    )


def _title(name: str) -> str:
    title = re.search(r"<title>(.*?)</title>", _svg(name))
    assert title is not None, f"{name}.svg has no title"
    return title[1]


def _svg(name: str) -> str:
    return (DOCS / "figures" / f"{name}.svg").read_text("utf-8")


def _caption(title: str, number: str) -> str:
    return f"<figcaption><b>Figure {number}.</b> {title}.</figcaption>" if number else ""


def named(markdown: str) -> list[str]:
    """What a page numbers, in order. The replay and the journey have their directive's name."""
    return [drawn or shown for drawn, shown in DRAWN.findall(markdown)]


def numbered(path: str, index: int) -> str:
    """ "5.2": the second of the fifth chapter; "2" on a page that is no chapter."""
    found = [one.path for one in chapters()]
    chapter = f"{found.index(path) + 1}." if path in found else ""
    return f"{chapter}{index + 1}"


def reference(name: str, path: str) -> str:
    """A link to a figure, from the page at `path`.

    Raises:
        LookupError: No page has a figure of that name; the build fails.
    """
    where = {one: (page, index) for one, page, index in _all()}
    if name not in where:
        raise LookupError(f"{{{{ ref {name} }}}}: known are {', '.join(sorted(where))}")
    page, index = where[name]
    way = "" if page == path else os.path.relpath(page, os.path.dirname(path) or ".")
    return f"[Figure {numbered(page, index)}]({way}#figure-{name})"


def _all() -> Iterator[tuple[str, str, int]]:
    """Each figure, the page that it is on, and which one of that page it is."""
    for page in sorted(DOCS.rglob("*.md")):
        for index, name in enumerate(named(page.read_text("utf-8"))):
            yield name, page.relative_to(DOCS).as_posix(), index
