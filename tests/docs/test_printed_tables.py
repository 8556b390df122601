"""What a cell prints in columns is a table in its page."""

import html
import re
from string import punctuation

import markdown
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.docs_hooks import with_outputs
from scripts.printed_tables import CAPTION, LABEL, as_table, captioned


@pytest.mark.parametrize(
    ("printed", "rows"),
    [
        ("a  b\n1  2", "| a | b |/|---:|---:|/| 1 | 2 |"),
        ("word  n\n  to  1", "| word | n |/|---|---:|/| to | 1 |"),  # words to the right
        ("      n\nto    1", "|  | n |/|---|---:|/| to | 1 |"),  # the first heading is missing
        ("  a  b\n  1  x y", "| a | b |/|---:|---|/| 1 | x y |"),
        ("a  b\n-  5 %\n1,0.5  -3e-7", "| a | b |/|---:|---:|/| - | 5 % |/| 1,0.5 | -3e-7 |"),
        ("a|b  *c*\n[0]  <s>", r"| a\|b | \*c\* |/|---|---|/| \[0\] | &lt;s&gt; |"),
        ("a  b\n1  2\n\nx  y  z\n", "| a | b |/|---:|---:|/| 1 | 2 |"),
    ],
)
def test_columns_are_cells(printed: str, rows: str) -> None:
    made = as_table(printed).split("\n\n")
    assert made[:2] == [LABEL, rows.replace("/", "\n")]
    assert made[2:] == (['```text title="prints"\nx  y  z\n```'] if "\n\n" in printed else [])


@given(
    st.lists(st.text(st.sampled_from(punctuation + "ab"), min_size=1), min_size=2, max_size=2),
    st.lists(st.text(st.sampled_from(punctuation + "ab"), min_size=1), min_size=2, max_size=2),
)
def test_a_reader_sees_each_sign_that_was_printed(head: list[str], row: list[str]) -> None:
    made = markdown.markdown(
        as_table(f"{'  '.join(head)}\n{'  '.join(row)}"), extensions=["tables"]
    )
    cells = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", made)
    assert [html.unescape(re.sub("<[^>]*>", "", cell)) for cell in cells] == [*head, *row]


def test_the_word_is_in_its_table() -> None:
    made = captioned(markdown.markdown(as_table("a  b\n1  2\n\nend"), extensions=["tables"]))
    assert made.startswith(f"<table>\n{CAPTION}") and LABEL not in made


@pytest.mark.parametrize("printed", ["a  b\n1", "a  b\n1  2  3", "a  b\n   2", "a\n1  2"])
def test_a_line_with_other_columns_is_an_error(printed: str) -> None:
    with pytest.raises(ValueError, match=r"\d columns of \d are in the printed line '"):
        as_table(printed)


def test_a_page_says_which_outputs_are_tables() -> None:
    page = "```python\nprint('a  b')\nprint('1  2')\n```\n{{ output table }}\nend"
    assert with_outputs(page).endswith(f"```\n\n{LABEL}\n\n| a | b |\n|---:|---:|\n| 1 | 2 |\nend")
    with pytest.raises(ValueError, match=r"\{\{ output table \}\} has no Python block"):
        with_outputs("text\n{{ output table }}")
