"""Links of a page of the documentation, and the headings that they can lead to."""

import re
from functools import cache
from pathlib import Path

from scripts.docs_hooks import with_code_and_results
from tests.meta.trees import ROOT

DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)\s#:]*)(?:#([\w-]+))?\)")
HEADING = re.compile(r"^#{1,6} (.+?)(?: *\{#([\w-]+)\})?$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
FIGURE = re.compile(r"^\{\{ figure (\S+) \}\}$", re.MULTILINE)


def slug(heading: str) -> str:
    """As Python-Markdown makes an id of a heading."""
    words = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
    return re.sub(r"[-\s]+", "-", words)


@cache
def anchors(page: Path) -> frozenset[str]:
    """The ids of its headings and figures; headings that come from results are among them."""
    text = page.read_text("utf-8")
    headings = HEADING.findall(FENCED.sub("", with_code_and_results(text)))
    figures = {f"figure-{name}" for name in FIGURE.findall(text)}
    return frozenset({own or slug(text) for text, own in headings} | figures)


def links(page: Path, text: str) -> list[tuple[Path, str]]:
    """Where the links of `text`, a part of that page, lead: a file, and an anchor or nothing."""
    found = LINK.findall(FENCED.sub("", text))
    return [((page.parent / path).resolve() if path else page, anchor) for path, anchor in found]


def dead(page: Path) -> list[str]:
    """The page's links that lead nowhere."""
    return [
        f"{target.name}#{anchor}"
        for target, anchor in links(page, page.read_text("utf-8"))
        if not target.exists() or (anchor and anchor not in anchors(target))
    ]
