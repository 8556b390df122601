"""A Griffe extension: docstrings as Markdown, on the pages of the API.

- Doctests become blocks of code. Markdown would take `>>>` for a quotation, and `[a][b]` in a
  result for a link.
- A text that begins with `>` or `>=` is no quotation either: Markdown would drop the sign.
- `first, second: text` under Args, Attributes or Raises becomes an item for each name. Griffe
  would take the second name for the type of the first.
- An item's text begins with a capital letter, as the other cells of a table do.
"""

import re
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"^( *)>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)
SECTION = re.compile(
    r"^(?:Args|Attributes|Raises|Returns|Yields):\n(?:(?: +.*)?(?:\n|\Z))*", re.MULTILINE
)
ITEM = re.compile(
    r"^    (?P<names>[\w*.]+(?:, [\w*.]+)*): (?P<text>.*(?:\n {5,}\S.*)*)", re.MULTILINE
)
SIGN = re.compile(r"^( *)(>=? )", re.MULTILINE)
WORD = re.compile(r"[a-z]+(?=[\s,.;:'-]|\Z)")


def fenced(docstring: str) -> str:
    """The docstring with each run of doctest lines in a fence, indented as it is."""
    return DOCTEST.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", docstring)


def itemised(docstring: str) -> str:
    """The docstring with an item for each name in its sections, which begins like a sentence."""
    return SECTION.sub(lambda section: ITEM.sub(_items, section[0]), docstring)


def _items(found: re.Match[str]) -> str:
    text = SIGN.sub(r"\1\\\2", found["text"])
    if WORD.match(text):
        text = text[0].upper() + text[1:]
    return "\n".join(f"    {name}: {text}" for name in found["names"].split(", "))


class DocstringsInPages(Extension):
    def on_instance(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = itemised(fenced(obj.docstring.value))
