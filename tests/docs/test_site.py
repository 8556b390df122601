"""The built site in Chromium, page by page: no code is cut off, no text of a figure is too small,
and nothing comes from elsewhere.

It takes the site that `make docs` left, if no page has changed since; or else builds one.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_replay import CHROMIUM, needs_chromium
from tests.meta.trees import ROOT
from tests.support.accessible import MARKED, controls, walk
from tests.support.chromium import Page, chromium
from tests.support.patience import HANG_S

WIDTHS = {"desktop": 1400, "phone": 390}
CUT = """(() => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
  const shown = [...document.querySelectorAll(".md-content :is(pre, pre code)")]
    .filter((element) => element.clientWidth > 0);
  const cut = shown.filter((element) => element.scrollWidth > element.clientWidth);
  const small = [...document.querySelectorAll(".md-content svg text")].filter((text) => {
    const scale = text.getScreenCTM(), size = parseFloat(getComputedStyle(text).fontSize);
    return text.getClientRects().length && size * Math.hypot(scale.b, scale.d) < 11.9;
  });
  const scrolls = [...document.querySelectorAll(".figure-part")].filter((part) => part.clientWidth);
  const unsaid = scrolls.filter((part) => {
    const hidden = part.querySelector(".figure-scroller");
    const says = part.querySelector(".figure-scrolls").clientHeight > 0;
    return says !== hidden.scrollWidth > hidden.clientWidth;
  });
  const outside = [...document.querySelectorAll("figure.figure svg text")].filter((text) => {
    const box = text.getBBox(), all = text.ownerSVGElement.viewBox.baseVal;
    return box.width && (box.x < 0 || box.x + box.width > all.width);
  });
  const words = (line) => { // spaces at the end of a line may lie under the button
    const found = [], range = document.createRange();
    const texts = document.createTreeWalker(line, NodeFilter.SHOW_TEXT);
    for (let node = texts.nextNode(); node; node = texts.nextNode()) {
      for (const word of node.data.matchAll(/\\S+/g)) {
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        found.push(...range.getClientRects());
      }
    }
    return found;
  };
  const covered = [...document.querySelectorAll("pre > code")].filter((code) => {
    const button = code.parentElement.querySelector(".md-code__nav")?.getBoundingClientRect();
    const lines = [...code.querySelectorAll('span[id*="__span-"]')].slice(0, 3);
    const under = (text) => text.right > button.left && text.left < button.right
      && text.top < button.bottom && text.bottom > button.top;
    return button && lines.some((line) => {
      const whole = document.createRange();
      whole.selectNodeContents(line);
      return [...whole.getClientRects()].some(under) && words(line).some(under);
    });
  });
  const gaps = [...document.querySelectorAll('pre > code span[id*="__span-"]')].filter((line) => {
    const first = words(line)[0]; // a row above it is empty: it did not fit behind the indent
    return first && first.top - line.getBoundingClientRect().top > first.height;
  });
  const begin = (all) => all.map((element) => element.textContent.trim().slice(0, 60));
  const prose = [...document.querySelectorAll(".md-content__inner > p")];
  const first = prose.find((paragraph) => paragraph.clientWidth > 0);
  const size = first && parseFloat(getComputedStyle(first).fontSize);
  const wide = ({ clientWidth }, { paddingLeft, paddingRight }) =>
    clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
  return {
    small: small.map((text) => text.textContent),
    // of prose, in ems: a letter takes about half of one
    measure: first ? Math.max(...prose.map((one) => wide(one, getComputedStyle(one)))) / size : 0,
    blocks: shown.length,
    cut: begin(cut), covered: begin(covered), outside: begin(outside), unsaid: begin(unsaid),
    gaps: begin(gaps),
    buttons: document.querySelectorAll(".md-code__nav").length,
  };
})()"""
COPIED = """[...document.querySelectorAll("pre > code")].map((code) => {
  code.setAttribute("data-md-copying", "");
  const copied = code.innerText.trimEnd();
  code.removeAttribute("data-md-copying");
  return [copied, code.textContent.trimEnd()];
})"""
needs_a_site = pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None, reason="MkDocs is not installed"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = [ROOT / "mkdocs.yml", *(ROOT / "docs").rglob("*.*"), *(ROOT / "scripts").glob("*.py")]
    built = ROOT / "site" / "index.html"
    if built.exists() and built.stat().st_mtime > max(path.stat().st_mtime for path in sources):
        return built.parent
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=ROOT, check=True, timeout=HANG_S, env=environment)
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(CHROMIUM, tmp_path_factory.mktemp("browser")) as page:
        yield page


def look(browser: Page, path: Path) -> Any:
    """The number of blocks of code, how those begin that are cut off, and text that is small."""
    browser.open(path.as_uri())
    loaded = f"document.readyState === 'complete' && location.href === '{path.as_uri()}'"
    browser.until(f"{loaded} && document.fonts.status === 'loaded'")
    return browser.run(CUT)


@needs_chromium
@needs_a_site
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.slow
def test_no_code_is_cut_off(browser: Page, site: Path, width: int) -> None:
    browser.size(width, 900, phone=width < 1000)
    pages = [path for path in site.rglob("*.html") if path.name != "404.html"]  # one for servers
    found = {str(path.relative_to(site)): look(browser, path) for path in pages}
    assert {page: one["cut"] for page, one in found.items() if one["cut"]} == {}
    for wrong in ("small", "covered", "outside", "unsaid", "gaps"):
        assert {page: one[wrong] for page, one in found.items() if one[wrong]} == {}, wrong
    assert sum(one["buttons"] for one in found.values()) > 400
    assert max(one["measure"] for one in found.values()) < 37  # 75 letters
    assert sum(one["blocks"] for one in found.values()) > 400
    assert {url.split(":")[0] for url in browser.requested} <= {"file", "data", "blob"}
    assert browser.problems == []


INTERACTIVE = (
    "exercises",
    "see-it",
    "speculation",
    "equal-bits",
    "why-cache",
    "system",
    "glossary",
)


@needs_chromium
@needs_a_site
@pytest.mark.slow
def test_each_control_has_a_name_and_tab_reaches_it(browser: Page, site: Path) -> None:
    """Names on all pages; the way of Tab on those with interactive parts."""
    browser.size(1400, 900)
    pages = [path for path in sorted(site.rglob("*.html")) if path.name != "404.html"]
    unnamed = {}
    for path in pages:
        look(browser, path)
        unnamed[str(path.relative_to(site))] = [
            role for role, name in controls(browser) if not name
        ]
    assert {page: roles for page, roles in unnamed.items() if roles} == {}
    for name in INTERACTIVE:
        look(browser, site / "tutorial" / name / "index.html")
        found = walk(browser)
        assert [one["stop"] for one in found] == list(range(browser.run(MARKED))), name
        unseen = [one["at"] for one in found[1:] if one["outline"] < 1 or not one["seen"]]
        assert unseen == [], name


@needs_chromium
@needs_a_site
@pytest.mark.slow
def test_an_item_of_a_docstring_is_no_quotation(browser: Page, site: Path) -> None:
    """`n: >= 1` must not lose its sign, and `first, second: text` has a row for each name."""
    for path in sorted((site / "api").rglob("*.html")):
        look(browser, path)
        assert browser.run("document.querySelectorAll('.doc blockquote').length") == 0, path
        names = browser.run(
            "[...document.querySelectorAll('.doc td:first-child')].map((cell) => cell.innerText)"
        )
        assert [name for name in names if name.strip().endswith(",")] == [], path


@needs_chromium
@needs_a_site
@pytest.mark.slow
def test_code_is_copied_as_it_is_written(browser: Page, site: Path) -> None:
    """Each line is a box of its own, to wrap with an indent; that must not double its newline."""
    browser.size(1400, 900)
    look(browser, site / "tutorial" / "attention" / "index.html")
    copied = browser.run(COPIED)
    assert len(copied) > 10
    assert [one for one, written in copied if one != written] == []


@needs_chromium
def test_the_measure_notices_a_line_that_is_cut_off(browser: Page, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    style = "width: 100px; overflow: auto"
    blocks = f"<pre style='{style}'>{'x' * 80}</pre><pre style='{style}'>short</pre>"
    page.write_text(f"<!doctype html><body class='md-content'>{blocks}")
    found = look(browser, page)
    assert (found["blocks"], found["cut"], found["small"]) == (2, ["x" * 60], [])


@needs_chromium
def test_the_measure_notices_a_figure_that_shrinks(browser: Page, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    texts = '<text y="20" font-size="12">small</text><text y="60" font-size="40">large</text>'
    svg = f'<svg viewBox="0 0 800 100" width="300">{texts}</svg>'
    page.write_text(f"<!doctype html><body class='md-content'>{svg}")
    assert look(browser, page)["small"] == ["small"]


@pytest.mark.slow
@needs_chromium
def test_the_measure_notices_what_is_covered_outside_or_not_said_to_scroll(
    browser: Page, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    button = "<nav class='md-code__nav' style='position: absolute; left: 0; top: 0'>copy</nav>"
    line = "<span id='__span-0-1'>under it</span>"
    code = f"<pre style='position: relative'>{button}<code>{line}</code></pre>"
    text = '<text x="90" y="20" font-size="12">outside</text>'
    svg = f'<svg viewBox="0 0 100 40" width="300">{text}</svg>'
    part = (
        "<div class='figure-part'><span class='figure-scrolls'></span>"
        f"<div class='figure-scroller' style='width: 50px; overflow-x: auto'>{svg}</div></div>"
    )
    figure = f"<figure class='figure'>{part}</figure>"
    page.write_text(f"<!doctype html><body class='md-content'>{code}{figure}")
    found = look(browser, page)
    assert (found["covered"], found["outside"]) == (["under it"], ["outside"])
    assert len(found["unsaid"]) == 1
