"""Docstrings, as the pages of the API show them."""

import pytest

pytest.importorskip("griffe")

from scripts.docstrings_in_pages import fenced, itemised


def test_a_doctest_is_fenced_with_its_results() -> None:
    text = "Adds.\n\n>>> add(\n...     1, 2)\n3\n>>> add(0, 0)\n0\n\nAnd more."
    code = ">>> add(\n...     1, 2)\n3\n>>> add(0, 0)\n0"
    assert fenced(text) == f"Adds.\n\n```pycon\n{code}\n```\n\nAnd more."


def test_a_fence_is_indented_as_its_doctest() -> None:
    assert fenced("Args:\n    >>> f()\n    [1][2]\n") == (
        "Args:\n    ```pycon\n    >>> f()\n    [1][2]\n    ```\n"
    )


def test_other_text_stays() -> None:
    assert fenced("x >>> y is no doctest\n    indented") == "x >>> y is no doctest\n    indented"


def test_a_sign_is_no_quotation() -> None:
    text = "Args:\n    n: >= 1; or\n        > 2, in the middle > of it.\n"
    assert itemised(text) == "Args:\n    n: \\>= 1; or\n        \\> 2, in the middle > of it.\n"


def test_each_name_is_an_item() -> None:
    text = (
        "Raises:\n    AError, BError: Both,\n        or one.\n    CError: None.\n\nAfter, all: text"
    )
    assert itemised(text) == (
        "Raises:\n    AError: Both,\n        or one.\n    BError: Both,\n        or one.\n"
        "    CError: None.\n\nAfter, all: text"
    )


@pytest.mark.parametrize(
    "text, shown",
    [
        ("as for `LLM`.", "As for `LLM`."),
        ("vLLM's name.", "vLLM's name."),
        ("int8 or fp8.", "int8 or fp8."),
        ("max_num_seqs of them.", "max_num_seqs of them."),
        ("`code` first.", "`code` first."),
        ("[T, H], rows.", "[T, H], rows."),
        ("so many.", "So many."),
    ],
)
def test_an_item_begins_like_a_sentence(text: str, shown: str) -> None:
    assert itemised(f"Says.\n\nArgs:\n    one: {text}\n") == f"Says.\n\nArgs:\n    one: {shown}\n"


def test_what_is_outside_of_sections_stays() -> None:
    text = "Such as\n\n    model: small\n    first, second: >= 1\n"
    assert itemised(text) == text
