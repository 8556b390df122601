"""Lists of the pages are lists in the site: four spaces stand before what goes on with an item."""

import re
from pathlib import Path

import pytest

from tests.meta.trees import ROOT

FENCED = re.compile(r"^( *)(```+).*?^\1\2$", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r" *(?:-|\d+\.) ")
NUMBER = re.compile(r" *(\d+)\. ")


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


def by_chance(markdown: str) -> list[str]:
    """Lines that are items only since a sentence's last number came to stand first: `256. So ...`.

    In a paragraph such a line is text, in a list it is not.
    """
    found, last = [], 0
    for block in re.split(r"\n\s*\n", FENCED.sub("", markdown)):
        lines = block.strip("\n").split("\n")
        for line in lines if ITEM.match(lines[0]) else []:
            number = NUMBER.match(line)
            if number and int(number[1]) in (1, last + 1):
                last = int(number[1])
            elif number:
                found.append(line)
    return found


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_no_list_is_torn(page: Path) -> None:
    assert torn(page.read_text("utf-8")) == []
    assert by_chance(page.read_text("utf-8")) == []


def test_the_search_notices_torn_lists() -> None:
    assert torn("- a\n  goes on\n\n    more of a\n\n- b\n- c\n\n1. d\n   goes on\n") == []
    assert torn("```\n  code\n- code\n```\n\ntext") == []
    assert torn("- a\n\n  more of a\n- b") == ["  more of a", "- b"]
    assert torn("text\n- a") == ["- a"]
    assert by_chance("1. a\n2. b\n\ntext\n\n1. c\n\n```\n256. x\n```\n") == []
    assert by_chance("- a pool of\n256. So it ends\n") == ["256. So it ends"]
    assert by_chance("a pool of\n256. So it ends\n") == []
