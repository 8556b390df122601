"""Where lines of the built pages break, and where they do not."""

import html as entities
import re

BLOCK = re.compile(r'<div class="([^"]*\bhighlight)"(>.*?</code></pre>)', re.DOTALL)
PRINTS = '<span class="filename">prints</span>'
COLUMN = 78  # characters: what a line of code may have in the column of text (column.css)
LINE = re.compile(r'(<span id="[^"]*__span-[-\w]+")(>(?:<(?:a|span)[^>]*>(?:</(?:a|span)>)?)*)( +)')
CELL = re.compile(r"<td[ >].*?</td>", re.DOTALL)
NAME = re.compile(r"(?<=<code>)[^<]{16,}(?=</code>)")
PLACE = re.compile(r"((?:[/_]|(?<!\d)\.)+)(?=\w)")  # where a name may be broken; 0.9 is none
VERBATIM = "|".join(rf"<{name}\b.*?</{name}>" for name in ("script", "style", "textarea"))
PIECE = re.compile(rf"({VERBATIM}|<(/?)(\w+)[^>]*>)|([^<]+)", re.DOTALL)
FLAG = re.compile(r"(?<![\w-])--?[A-Za-z]\w*")
UNIT = re.compile(r"(?<=\d)[ \n](?=%|(?:[kKMGT]i?B|[mµ]?s|[GT]FLOPS?)(?![\w']))")


def break_lines(html: str) -> str:
    """A line of code says how far it is indented, a long name in a table where it may be broken.

    So docs/stylesheets/code.css can let what does not fit go on below, two columns further in. A
    flag is not broken behind its dashes, nor a number before its unit.
    """
    html = BLOCK.sub(_widened, html)
    html = LINE.sub(
        lambda line: f'{line[1]} style="--in: {len(line[3])}ch"{line[2]}{line[3]}', html
    )
    html = CELL.sub(
        lambda cell: NAME.sub(lambda name: PLACE.sub(r"\1<wbr>", name[0]), cell[0]), html
    )
    return keep_together(html)


def _widened(block: re.Match[str]) -> str:
    """A block with a line too long for the column of text is `wide-code`; an output, `prints`."""
    text = entities.unescape(re.sub("<[^>]*>", "", block[2].rpartition("<code>")[2]))
    wide = " wide-code" if max(map(len, text.splitlines()), default=0) > COLUMN else ""
    output = " prints" if PRINTS in block[2] else ""
    return f'<div class="{block[1]}{wide}{output}"{block[2]}'


def keep_together(html: str) -> str:
    depth = 0  # of elements of code

    def kept(piece: re.Match[str]) -> str:
        nonlocal depth
        tag, closes, name, text = piece.groups()
        if tag is not None:
            if name == "code":
                depth += -1 if closes else 1
            return tag
        if depth:
            return FLAG.sub(r'<span class="unbroken">\g<0></span>', text)
        return UNIT.sub("\N{NO-BREAK SPACE}", text)

    return PIECE.sub(kept, html)
