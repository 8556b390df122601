"""Doctests in docstrings, as the pages of the API show them."""

import pytest

pytest.importorskip("griffe")

from scripts.doctest_blocks import fenced


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
