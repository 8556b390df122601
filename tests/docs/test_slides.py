"""Each slide of the five decks has a section that answers it, a question and a model answer."""

import json
import re
from pathlib import Path

import pytest

from scripts.slide_addresses import address_slides, slides_of
from tests.docs.page_links import DOCS, dead, links, slug

TUTORIAL = DOCS / "tutorial"
DECKS = json.loads((Path(__file__).parent / "slides.json").read_text("utf-8"))
"""By page and heading: the slides' titles, in order."""

ROW = re.compile(r"^\| (\d[^|]*) \| ([^|]+) \| (.+) \|$", re.MULTILINE)
FOLD = re.compile(r"<details class=.question.><summary>(.+?)</summary>(.+?)</details>")
END = re.compile(r"[.?](?=[)]? |[)]?$)")


def part(deck: str) -> tuple[Path, str]:
    """The page, and the part of it that has the deck's table: all of it if none is named."""
    name, _, heading = deck.partition(": ")
    text = (TUTORIAL / name).read_text("utf-8")
    if heading:
        text = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return TUTORIAL / name, text


def numbers(title: str) -> list[int]:
    """The slides that a row is about: "28, 29, 31 The five headings", or "1 to 5 Title"."""
    found = re.match(r"[\d, to]*\d", title)
    assert found is not None
    return slides_of(found[0])


@pytest.mark.parametrize("deck", DECKS)
def test_each_slide_has_a_row(deck: str) -> None:
    rows = ROW.findall(part(deck)[1])
    shown = [number for title, _, _ in rows for number in numbers(title)]
    assert sorted(shown) == list(range(1, len(DECKS[deck]) + 1))


@pytest.mark.parametrize("deck", DECKS)
def test_each_row_has_a_section_a_question_and_an_answer(deck: str) -> None:
    page, text = part(deck)
    for title, where, fold in ROW.findall(text):
        assert links(page, where), title
        ((question, answer),) = FOLD.findall(fold)
        assert question.endswith(("?", ".")) and len(question) > 20, title
        assert 1 <= len(END.findall(answer)) <= 4, title


@pytest.mark.parametrize("name", ["slides", "slides-meetup"])
def test_links_lead_to_a_heading(name: str) -> None:
    assert dead(TUTORIAL / f"{name}.md") == []


def test_headings_become_ids() -> None:
    assert slug("What changes against the paper's mode") == "what-changes-against-the-papers-mode"
    assert slug("A kernel 20 to 26 % slower") == "a-kernel-20-to-26-slower"
    assert numbers("27 to 29, 31, 37 The same") == [27, 28, 29, 31, 37]


def test_each_slide_has_an_address() -> None:
    rows = "".join(f"<tr>\n<td>{title}</td>\n</tr>\n" for title in ("1, 3 to 5 A", "2 B", "none"))
    table = f"<table><tbody>\n{rows}</tbody></table>"
    html = address_slides(f'<div class="slides" data-deck="talk">\n{table}\n</div>\n{table}')
    deck, other = html.split("</table>\n</div>")
    assert re.findall(r'id="(\S+?)"', deck) == [f"talk-{n}" for n in (1, 3, 4, 5, 2)]
    assert re.findall(r'href="#(\S+?)">(.+?)<', deck) == [("talk-1", "1, 3 to 5"), ("talk-2", "2")]
    assert other.strip() == table  # no deck


@pytest.mark.parametrize("name", ["slides", "slides-meetup"])
def test_each_table_of_slides_names_its_deck(name: str) -> None:
    tables = re.split(r'<div class="slides"', (TUTORIAL / f"{name}.md").read_text("utf-8"))[1:]
    assert all(one.startswith(' data-deck="') for one in tables if ROW.search(one))
