"""What a cell prints in columns, as a table: `{{ output table }}` of a page.

Two spaces or more are between the columns. The first line has their headings, of which the first
may be missing. A blank line ends the table; what follows is shown as it is printed.

>>> print(as_table("    prompt  answer\\na        1      20\\nb        2       3\\n\\nDone.\\n"))
<p class="printed">prints</p>
<BLANKLINE>
|  | prompt | answer |
|---|---:|---:|
| a | 1 | 20 |
| b | 2 | 3 |
<BLANKLINE>
```text title="prints"
Done.
```
"""

import re
from html import escape
from textwrap import dedent

GAP = re.compile(r" {2,}")
NUMBER = re.compile(r"[-+]?\d[\d,.]*(?:e[-+]?\d+)?(?: ?%)?|-?")
MARKUP = re.compile(r"[\\`*_\[\]{}<&>|#]")
LABEL = '<p class="printed">prints</p>'
"""Stands before the table in Markdown, which knows no captions."""
CAPTION = '<caption class="printed">prints</caption>'


def as_table(printed: str) -> str:
    """Markdown. A column of numbers stands to the right.

    Raises:
        ValueError: A line has fewer cells than another, or more; the build of the site fails.
    """
    columns, _, rest = printed.partition("\n\n")
    lines = dedent(columns).splitlines()
    rows = [GAP.split(line.strip()) for line in lines]
    width = max(map(len, rows))
    if len(rows[0]) == width - 1 and lines[0].startswith("  "):
        rows[0].insert(0, "")
    for line, row in zip(lines, rows, strict=True):
        if len(row) != width:
            raise ValueError(f"{len(row)} columns of {width} are in the printed line {line!r}")
    head, *body = rows
    right = [all(NUMBER.fullmatch(row[i]) for row in body) for i in range(width)]
    rule = "|" + "".join("---:|" if numbers else "---|" for numbers in right)
    text = [f"| {' | '.join(MARKUP.sub(_plain, cell) for cell in row)} |" for row in (head, *body)]
    found = "\n".join([LABEL, "", text[0], rule, *text[1:]])
    return f"{found}\n\n{as_block(rest)}" if rest else found


def captioned(html: str) -> str:
    """The page with the word in its table, so that it is as wide as that."""
    return re.sub(rf"{LABEL}\s*<table>", f"<table>\n{CAPTION}", html)


def _plain(sign: re.Match[str]) -> str:
    """A sign of Markdown as text; a backslash does not help before those of HTML."""
    return escape(sign[0]) if sign[0] in "<&>" else f"\\{sign[0]}"


def as_block(printed: str) -> str:
    """Markdown of a block, under the same word."""
    return f'```text title="prints"\n{printed.rstrip()}\n```'
