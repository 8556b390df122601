"""Formulas become MathML, code stays code, and every page's formulas can be read."""

import pytest

from scripts.formulas import on_page_markdown
from tests.meta.trees import ROOT

pytest.importorskip("latex2mathml")
PAGES = [path for path in (ROOT / "docs").rglob("*.md") if "$$" in path.read_text("utf-8")]


def test_blocks_and_sentences() -> None:
    page = on_page_markdown("So\n\n$$\nU + k \\le G\n$$\n\nwhere \\(G\\) is all.\n")
    assert '<div class="formula" markdown="0"><math' in page and 'display="block"' in page
    assert "<mi>U</mi><mo>&#x0002B;</mo><mi>k</mi><mo>&#x02264;</mo><mi>G</mi>" in page
    assert 'where <span class="unbroken"><math' in page and page.count("<math") == 2


def test_a_full_stop_stays_beside_its_formula() -> None:
    page = on_page_markdown("There (with \\(G\\)), and up to \\(U + k\\). A sentence.\n")
    assert "</math>),</span> and" in page and "</math>.</span> A sentence." in page


def test_a_formula_at_the_beginning_of_a_line_stays_in_its_sentence() -> None:
    markdown = pytest.importorskip("markdown").Markdown(extensions=["md_in_html"])
    made = markdown.convert(on_page_markdown("There are\n\\(U\\) blocks and *more*.\n"))
    assert made.count("<p>") == 1 and made.endswith("</math></span> blocks and <em>more</em>.</p>")


def test_code_and_pages_without_formulas_are_left_alone() -> None:
    code = "```sh\necho $$\n```\n\nA \\(x\\).\n"
    assert on_page_markdown(code).startswith("```sh\necho $$\n```\n")
    assert on_page_markdown("No formula.") == "No formula."


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_page_s_formulas(path: object) -> None:
    """What LaTeX's names were not understood stands in the output with its backslash."""
    text = path.read_text("utf-8")  # type: ignore[attr-defined]
    made = on_page_markdown(text)
    assert "$$" not in made
    for formula in made.split("<math")[1:]:
        assert "\\" not in formula.partition("</math>")[0]
