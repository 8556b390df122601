"""A Griffe extension: doctests in docstrings become blocks of code on the pages of the API.

Markdown would take `>>>` for a quotation, and `[a][b]` in a result for a link.
"""

import re
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"^( *)>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


def fenced(docstring: str) -> str:
    """The docstring with each run of doctest lines in a fence, indented as it is."""
    return DOCTEST.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", docstring)


class DoctestBlocks(Extension):
    def on_instance(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
