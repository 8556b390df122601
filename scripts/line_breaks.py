"""Where lines of the built pages break, and where they do not."""

import html as entities
import re
from collections.abc import Iterator
from itertools import chain, repeat
from operator import gt

BLOCK = re.compile(r'<div class="([^"]*\bhighlight)"(>.*?</code></pre>)', re.DOTALL)
PRINTS = '<span class="filename">prints</span>'
COLUMN = 79  # characters: what a line of code may have in the column of text (column.css)
BUTTON = 5  # characters less in the first two lines: the room of the button that copies (code.css)
LINE = re.compile(r'(<span id="[^"]*__span-[-\w]+")(>(?:<(?:a|span)[^>]*>(?:</(?:a|span)>)?)*)( +)')
PHONE = 42  # characters: what a line of code that goes on below may have on a phone
WORD = re.compile(r"(?:<[^>]*>|[^<\s])+")  # of code, and tags in it
JOINT = re.compile(r'(?<=</span>)(?=<span class="[nms])|(<[^>]*>)|(?<=[_.(\[])(?=[^\W_])')
NUMBER = 6  # characters: the margin of a line that is numbered (code.css)
CELL = re.compile(r"<(t[dh])[ >].*?</\1>", re.DOTALL)
# As narrow as a cell: a note in the margin, and the bold line that opens a box
NOTE = re.compile(r'<div class="admonition info">.*?</div>|<summary>.*?</summary>', re.DOTALL)
LONG = 60  # characters: more are prose, and want more than a narrow column of a phone
WORDS = 14  # characters: a name of more is not to become a column of single words
NAME = re.compile(r"(?<=<code>)[^<]{16,}(?=</code>)|(?<=[ >])\w{16,}(?=[ <.,;:)])")
PATH = re.compile(rf"(?<=<code>)[^<\s]{{{PHONE - 6},}}(?=</code>)")  # wider than a list on a phone
GAP = re.compile(r'(?:<span class="w"> {2,}</span>| {2,})(?=\S)')  # before a comment, a column
CODE = re.compile(r"(?<=<code>).*?(?=</code>)", re.DOTALL)
SHORT = 16  # characters: a name or a type of fewer is not broken
# Where a longer one may be broken: not behind what it begins with, nor in a number such as 0.9, nor
# before an end of a letter or two, such as that of a file's name.
PLACE = re.compile(r"(?<=[^\W_])((?:[/_]|(?<!\d)\.)+)(?=\w{3})")
VERBATIM = "|".join(
    rf"<{name}\b.*?</{name}>" for name in ("script", "style", "textarea", "svg", "math")
)
PIECE = re.compile(rf"({VERBATIM}|<(/?)(\w+)[^>]*>)|([^<]+)", re.DOTALL)
DASHED = re.compile(  # a negative number or bracket, 1e-5, a date
    r"(?<![\w-])(?:-\(|(?:-(?:inf|\d[\d.,]*\d|\d)|-?[\d.]+e-\d+|\d{4}-\d\d-\d\d)(?![\w-]))"
)
FLAG = re.compile(r"(?<![\w-])--?[A-Za-z]\w*|-&gt;")  # or an arrow
UNBROKEN = r'<span class="unbroken">\g<0></span>'
UNIT = re.compile(r"(?<=\d)[ \n](?=%|(?:[kKMGT]i?B|[mµ]?s|[GT]FLOPS?)(?![\w']))")


def break_lines(html: str) -> str:
    """A line of code says how far it is indented, a long name in a table where it may be broken.

    So docs/stylesheets/code.css can let what does not fit go on below, two columns further in. A
    flag, a date and a negative number are not broken behind their dashes, nor a number before its
    unit, nor a short name in a table at all. A cell of a table with much text is marked.
    """
    html = BLOCK.sub(_widened, html)
    html = LINE.sub(
        lambda line: f'{line[1]} style="--in: {len(line[3])}ch"{line[2]}{line[3]}', html
    )
    html = NOTE.sub(lambda note: _broken(note[0]), CELL.sub(_cell, html))
    return keep_together(PATH.sub(_parted, html))


def _jointed(line: str, button: int) -> str:
    """A line of code whose words, if too long for a phone, may be broken where their parts meet.

    Else a browser breaks them anywhere, and leaves the row empty that has the indent alone.
    """
    text = _text(line)
    room = PHONE - button - (len(text) - len(text.lstrip())) - ("linenos" in line) * NUMBER

    def jointed(word: re.Match[str]) -> str:
        if len(_text(word[0])) <= room:
            return word[0]
        return JOINT.sub(lambda joint: joint[1] or "<wbr>", word[0])

    joint = WORD.sub(jointed, line)
    return _behind_gap(joint) if len(text) > PHONE - button else joint


def _behind_gap(line: str) -> str:
    """A line of code, with a span around what stands behind its first gap."""
    for gap in GAP.finditer(line):
        before, rest = line[: gap.end()], line[gap.end() :]
        if _text(before).strip() and _is_whole(rest):
            return f'{before}<span class="rest">{rest}</span>'
    return line


def _is_whole(html: str) -> bool:
    """Whether each element ends in it that begins in it."""
    return all(html.count(f"<{tag}") == html.count(f"</{tag}") for tag in ("span", "a", "code"))


def _text(html: str) -> str:
    return entities.unescape(re.sub("<[^>]*>", "", html))


def _broken(html: str) -> str:
    return NAME.sub(_parted, html)


def _parted(name: re.Match[str]) -> str:
    return PLACE.sub(r"\1<wbr>", name[0])


def _whole(code: re.Match[str]) -> str:
    short = len(_text(code[0])) < SHORT
    return f'<span class="unbroken">{code[0]}</span>' if short else code[0]


def _cell(cell: re.Match[str]) -> str:
    """A cell of a table: where its names may be broken, and how much text it has."""
    broken = CODE.sub(_whole, _broken(cell[0]))
    if cell[1] == "th":
        return broken
    length = len(_text(cell[0]))
    kind = "long" if length > LONG else "words" if length > WORDS else "short"
    return f'<td class="{kind}"{broken[3:]}'


def _widened(block: re.Match[str]) -> str:
    """A block with a line too long for the column of text is `wide-code`; an output, `prints`."""
    text = _text(block[2].rpartition("<code>")[2])
    room = (COLUMN - button for button in _buttons())
    wide = " wide-code" if any(map(gt, map(len, text.splitlines()), room)) else ""
    output = " prints" if PRINTS in block[2] else ""
    html = block[2] if "__span-" in block[2] else _spanned(block[2], block.start())
    lines = "\n".join(map(_jointed, html.split("\n"), _buttons()))
    return f'<div class="{block[1]}{wide}{output}"{lines}'


def _buttons() -> Iterator[int]:
    """What the button takes of each line."""
    return chain([BUTTON, BUTTON], repeat(0))


def _spanned(html: str, number: int) -> str:
    """A block that is indented in its page, and not fenced: each line in a span, as others have."""
    before, code, after = re.split(r"(?<=<code>)|(?=</code>)", html)
    lines = [
        f'<span id="__span-plain{number}-{i}">{line}</span>'
        for i, line in enumerate(code.splitlines(keepends=True), 1)
    ]
    return "".join([before, *lines, after])


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
            return FLAG.sub(UNBROKEN, text)
        return DASHED.sub(UNBROKEN, UNIT.sub("\N{NO-BREAK SPACE}", text))

    return PIECE.sub(kept, html)
