"""Where lines of the built pages may break: the text stays, and long words get places to break."""

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from scripts.line_breaks import BUTTON, COLUMN, NUMBER, PHONE, break_lines

NAMES = st.from_regex(r"[a-z]{1,9}(_[a-z]{1,9}){0,4}", fullmatch=True)
WORDS = st.lists(NAMES, min_size=1, max_size=5).map(".".join)
LINES = st.tuples(st.integers(0, 20), st.lists(WORDS, min_size=1, max_size=3)).map(
    lambda one: " " * one[0] + " = ".join(one[1])
)


def text(page: str) -> str:
    return html.unescape(re.sub("<[^>]*>", "", page))


def block(lines: list[str], spans: str) -> str:
    """As the pages have code: with a span a line, or indented and plain."""
    if spans == "plain":
        code = "".join(f"{html.escape(line)}\n" for line in lines)
        return f'<div class="highlight"><pre><span></span><code>{code}</code></pre></div>'
    formatter = HtmlFormatter(nowrap=True, linespans="__span-0")
    code = highlight("\n".join(lines), PythonLexer(stripnl=False), formatter)
    return f'<div class="language-python highlight"><pre><code>{code}</code></pre></div>'


@pytest.mark.parametrize("spans", ["plain", "fenced"])
@given(lines=st.lists(LINES, min_size=1, max_size=4))
def test_no_character_changes_and_each_line_has_a_span(spans: str, lines: list[str]) -> None:
    page = block(lines, spans)
    broken = break_lines(page)
    assert text(broken) == text(page)
    assert broken.count('<span id="__span-') == len(lines)


COLUMNS = st.lists(st.text("ab #'", min_size=1, max_size=30), min_size=1, max_size=4)


@pytest.mark.parametrize("spans", ["plain", "fenced"])
@given(lines=st.lists(COLUMNS.map("   ".join), min_size=1, max_size=4))
def test_what_stands_behind_a_gap_is_in_a_span_and_no_character_changes(
    spans: str, lines: list[str]
) -> None:
    page = block(lines, spans)
    broken = break_lines(page)
    assert text(broken) == text(page)
    for tag in ("span", "code"):
        assert broken.count(f"<{tag}") == broken.count(f"</{tag}>")
    for rest in re.findall(r'<span class="rest">([^\n]*)', broken):
        assert not text(rest).startswith(" ")


def test_a_comment_of_a_line_too_long_for_a_phone_is_behind_its_gap() -> None:
    line = "stack.touch(2)" + " " * 12 + "# what is said of it there"
    assert '<span class="rest"><span class="c1"># what' in break_lines(block([line], "fenced"))
    assert "rest" not in break_lines(block([line[: PHONE - BUTTON - 1]], "fenced"))


@given(lines=st.lists(LINES, min_size=1, max_size=4))
def test_what_is_between_two_breaks_of_a_long_word_is_a_name(lines: list[str]) -> None:
    for line in break_lines(block(lines, "fenced")).split("\n"):
        for word in re.findall(r"(?:<[^>]*>|[^<\s])+", line):
            parts = [text(part) for part in word.split("<wbr>")]
            assert all(re.fullmatch(r"[a-z]*[_.]?[a-z]*[_.]?|=", part) for part in parts[1:])
            room = PHONE - len(text(line)) + len(text(line).lstrip())
            if len(parts) > 1:
                assert len("".join(parts)) > room - BUTTON - NUMBER


PATHS = st.from_regex(r"[/_.-]{0,2}[a-z0-9]{1,9}([/_.-]{1,2}[a-z0-9]{1,9}){0,5}", fullmatch=True)


@given(name=PATHS, kind=st.sampled_from(["td", "th"]))
def test_a_name_in_a_cell_is_whole_if_it_is_short_and_has_words_between_breaks_if_not(
    name: str, kind: str
) -> None:
    cell = f"<{kind}><code>{name}</code></{kind}>"
    broken = break_lines(f"<table><tr>{cell}</tr></table>")
    assert text(broken) == name
    pieces = [text(piece) for piece in broken.split("<wbr>")]
    if len(name) < 16:
        assert pieces == [name] and '<code><span class="unbroken">' in broken
    else:
        assert all(re.search("[a-z0-9]", piece) for piece in pieces)


def test_a_short_type_in_a_cell_is_whole_also_with_a_link_in_it() -> None:
    code = '<code><span title="str">str</span> | None</code>'
    whole = '<code><span class="unbroken"><span title="str">str</span> | None</span></code>'
    assert whole in break_lines(f"<td>{code}</td>")
    long = "<code>Callable[[int, str], float]</code>"
    assert long in break_lines(f"<td>{long}</td>")


def test_a_number_is_not_broken_at_its_signs() -> None:
    broken = break_lines("<p>An error of 1e-7, at -inf and -1,024, in 2023-09 and a-1.</p>")
    kept = re.findall(r'<span class="unbroken">(.*?)</span>', broken)
    assert kept == ["1e-7", "-inf", "-1,024"]


@pytest.mark.parametrize(
    ("text", "whole"),
    [("at 1e-5.", "1e-5"), ("on 2026-11-23 at 21:52", "2026-11-23"), ("-(r + 1) means", "-(")],
)
def test_what_has_a_dash_of_its_own_is_whole(text: str, whole: str) -> None:
    broken = break_lines(f"<p>{text}</p>")
    assert broken == f"<p>{text}</p>".replace(whole, f'<span class="unbroken">{whole}</span>')


def test_an_arrow_of_code_is_whole() -> None:
    broken = break_lines("<p><code>a == 1 -&gt; False</code></p>")
    assert broken == '<p><code>a == 1 <span class="unbroken">-&gt;</span> False</code></p>'


@pytest.mark.parametrize("text", ["low-rank", "8-bit", "a - (b)", "AVX-512", "2026-11-23x"])
def test_other_dashes_may_end_a_line(text: str) -> None:
    assert break_lines(f"<p>{text}</p>") == f"<p>{text}</p>"


def test_a_path_in_a_note_has_places_to_break() -> None:
    """A note in the margin is as narrow as a cell of a table; a paragraph is not."""
    path = "<code>jax_engine/core/adapter_slots.py</code>"
    assert "/<wbr>core/" in break_lines(f"<details><summary>{path}</summary></details>")
    note = break_lines(f'<div class="admonition info"><p>{path} has them</p></div><p>{path}</p>')
    assert note.count("/<wbr>core/<wbr>adapter_<wbr>slots.py") == 1
    assert note.endswith(f"<p>{path}</p>")


@given(
    lengths=st.lists(st.integers(COLUMN - BUTTON - 2, COLUMN + 2), min_size=1, max_size=4),
    spans=st.sampled_from(["plain", "fenced"]),
)
def test_a_block_is_wide_if_a_line_would_not_fit_beside_the_button(
    lengths: list[int], spans: str
) -> None:
    wide = "wide-code" in break_lines(block(["x" * length for length in lengths], spans))
    rooms = [COLUMN - BUTTON, COLUMN - BUTTON, COLUMN, COLUMN]
    assert wide == any(length > room for length, room in zip(lengths, rooms, strict=False))
