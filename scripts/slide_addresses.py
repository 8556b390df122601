"""An address for each slide in the pages that go through decks: `tutorial/slides/#cs240-18`.

A table of slides stands in `<div class="slides" data-deck="cs240">`. Its rows begin with numbers:
"18 Title", "28, 29, 31 Title" or "1 to 5 Title".
"""

import re

DECK = re.compile(r'<div class="slides" data-deck="(\w+)">.*?</table>', re.DOTALL)
ROW = re.compile(r"<tr>\n<td>([\d, to]*\d)(?= )")


def slides_of(numbers: str) -> list[int]:
    """The slides of a row.

    >>> slides_of("3, 5 to 7")
    [3, 5, 6, 7]
    """
    ranges = [one.split(" to ") for one in numbers.split(", ")]
    return [n for one in ranges for n in range(int(one[0]), int(one[-1]) + 1)]


def address_slides(html: str) -> str:
    """The page's HTML, with an id for each slide, and links on the numbers of the rows."""

    def with_rows(deck: re.Match[str]) -> str:
        return ROW.sub(lambda row: _addressed(deck[1], row[1]), deck[0])

    return DECK.sub(with_rows, html)


def _addressed(deck: str, numbers: str) -> str:
    first, *others = slides_of(numbers)
    more = "".join(f'<span id="{deck}-{n}"></span>' for n in others)
    link = f'<a class="slide-address" href="#{deck}-{first}">{numbers}</a>'
    return f'<tr id="{deck}-{first}">\n<td>{more}{link}'
