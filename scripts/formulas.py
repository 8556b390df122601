r"""A MkDocs hook: formulas in LaTeX become MathML when the site is built.

    $$
    U + k + w \le G
    $$

is a block, and \( n \times nb \) stands in a sentence. Code is left as it is. Browsers draw MathML
themselves: nothing is fetched.
"""

import re
from typing import Any

FENCED = re.compile(r"^( *)(```.*?^\1```)$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^( *)\$\$\n(.*?)\n *\$\$$", re.MULTILINE | re.DOTALL)
PRIME = re.compile(r"<msup>(<mi>\w</mi>)<mi>&#x02032;</mi></msup>")  # its sign is raised already
INLINE = re.compile(r"\\\((.+?)\\\)([.,;:)]*)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for each page."""
    if "$$" not in markdown and r"\(" not in markdown:
        return markdown
    parts, at = [], 0
    for code in FENCED.finditer(markdown):
        parts += [typeset(markdown[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*parts, typeset(markdown[at:])])


def typeset(text: str) -> str:
    """Formulas in text without code."""
    text = BLOCK.sub(lambda found: f"{found[1]}{block(found[2])}", text)
    return INLINE.sub(lambda found: inline(found[1], found[2]), text)


def block(latex: str) -> str:
    return f'<div class="formula" markdown="0">{mathml(latex, "block")}</div>'


def inline(latex: str, after: str = "") -> str:
    """Within a `span`: Markdown takes a line that begins with `math` for a block of its own.

    What follows without a space stays on its line: browsers would break between the two.
    """
    return f'<span class="unbroken">{mathml(latex, "inline")}{after}</span>'


def mathml(latex: str, display: str) -> str:
    """In one line, since Markdown must not look into it."""
    from latex2mathml.converter import convert

    html = str(convert(latex.strip(), display=display)).replace("\n", " ")
    return PRIME.sub(r"<mrow>\1<mo lspace='0' rspace='0'>′</mo></mrow>", html)
