"""Lists of the pages are lists in the site: four spaces stand before what goes on with an item."""

import re
from pathlib import Path

import pytest

from tests.meta.trees import ROOT

FENCED = re.compile(r"^( *)(```+).*?^\1\2$", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r" *(?:-|\d+\.) ")


def torn(markdown: str) -> list[str]:
    """First lines of paragraphs that a list lost, and items that a paragraph swallowed."""
    found = []
    for block in re.split(r"\n\s*\n", FENCED.sub("", markdown)):
        first, *rest = block.strip("\n").split("\n")
        if re.match(r" {1,3}[^\s-]", first):
            found.append(first)
        if not ITEM.match(first) and not first.startswith("    "):
            found += [line for line in rest if line.startswith("- ")]
    return found


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_no_list_is_torn(page: Path) -> None:
    assert torn(page.read_text("utf-8")) == []


def test_the_search_notices_torn_lists() -> None:
    assert torn("- a\n  goes on\n\n    more of a\n\n- b\n- c\n\n1. d\n   goes on\n") == []
    assert torn("```\n  code\n- code\n```\n\ntext") == []
    assert torn("- a\n\n  more of a\n- b") == ["  more of a", "- b"]
    assert torn("text\n- a") == ["- a"]
