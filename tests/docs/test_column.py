"""The built site's layout in Chromium: a centred column, notes beside it, tables on a phone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_replay import CHROMIUM, needs_chromium
from tests.docs.test_site import look, needs_a_site, site
from tests.support.chromium import Page, chromium

__all__ = ["site"]  # a fixture
WITH_NOTES = ("block-manager", "scheduler", "sharing", "swap-or-recompute")
LAID_OUT = """(() => {
  const box = (element) => element.getBoundingClientRect();
  const all = (selector) => [...document.querySelectorAll(`.md-content__inner > ${selector}`)]
    .filter((one) => one.getClientRects().length);
  const middle = (element) => (box(element).left + box(element).right) / 2;
  const text = all(":is(p, h1, h2, ul, ol, blockquote, .admonition.success, details)");
  const wide = all(":is(figure, .highlight, .md-typeset__scrollwrap)");
  const apart = (a, b) =>
    a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
  const others = [...text, ...wide];
  return {
    window: document.documentElement.clientWidth,
    scrolls: document.documentElement.scrollWidth,
    middles: [...text, ...wide].map(middle),
    widths: [...new Set(text.map((one) => Math.round(box(one).width)))],
    widest: Math.max(0, ...wide.map((one) => box(one).width)),
    notes: all(".admonition.info").map((note) => ({
      left: box(note).left, right: box(note).right,
      over: others.filter((one) => !apart(box(note), box(one)))
        .map((one) => one.textContent.slice(0, 40)),
    })),
  };
})()"""
TABLES = """[...document.querySelectorAll(".md-typeset__scrollwrap")].map((scroller) => {
  const before = [...scroller.querySelectorAll("tr > :first-child")];
  if (!before.length || scroller.scrollWidth <= scroller.clientWidth + 1) return null;
  scroller.scrollLeft = scroller.scrollWidth;
  const frame = scroller.getBoundingClientRect();
  const boxes = before.map((cell) => cell.getBoundingClientRect());
  const found = {
    moved: scroller.scrollLeft,
    left: Math.max(...boxes.map((box) => Math.abs(box.left - frame.left))),
    share: Math.max(...boxes.map((box) => box.width)) / frame.width,
    clear: before.map((cell) => getComputedStyle(cell).backgroundColor)
      .filter((colour) => colour.startsWith("rgba") || colour === "transparent"),
  };
  scroller.scrollLeft = 0;
  return found;
}).filter(Boolean)"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(CHROMIUM, tmp_path_factory.mktemp("browser")) as page:
        yield page


def pages(site: Path) -> list[Path]:
    return [path for path in sorted(site.rglob("*.html")) if path.name != "404.html"]


def laid_out(browser: Page, path: Path) -> Any:
    look(browser, path)
    return browser.run(LAID_OUT)


@pytest.mark.slow
@needs_chromium
@needs_a_site
def test_text_is_one_centred_column(browser: Page, site: Path) -> None:
    """All that stands in it has the same width and the same middle: that of the window."""
    browser.size(1400, 900)
    for path in pages(site):
        found = laid_out(browser, path)
        middle = found["window"] / 2
        assert [one for one in found["middles"] if abs(one - middle) > 2] == [], path
        if "api" not in path.parts:
            assert len(found["widths"]) <= 1, path
        assert found["scrolls"] <= found["window"], path


@needs_chromium
@needs_a_site
@pytest.mark.parametrize("width", [390, 700, 960, 1219, 1220, 1300, 1400, 1600])
@pytest.mark.slow
def test_a_note_covers_no_text(browser: Page, site: Path, width: int) -> None:
    browser.size(width, 900, phone=width < 600)
    for name in WITH_NOTES:
        found = laid_out(browser, site / "tutorial" / name / "index.html")
        assert found["notes"], name
        for note in found["notes"]:
            assert note["over"] == [], name
            assert note["left"] >= 0 and note["right"] <= found["window"], name
            beside = note["left"] > max(found["middles"])
            assert beside == (width >= 1220), name


@pytest.mark.slow
@needs_chromium
@needs_a_site
def test_a_phone_scrolls_no_page_sideways_and_keeps_first_columns(
    browser: Page, site: Path
) -> None:
    browser.size(390, 844, phone=True)
    scrolled = 0
    for path in pages(site):
        look(browser, path)
        assert browser.run("document.documentElement.scrollWidth") <= 390, path
        for table in browser.run(TABLES):
            scrolled += 1
            assert table["moved"] > 0 and table["left"] <= 1, path
            assert table["share"] < 0.6 and table["clear"] == [], path
    assert scrolled > 20


@needs_chromium
def test_the_measures_notice_what_is_wrong(browser: Page, tmp_path: Path) -> None:
    """A note on the text, a column that is not centred, and a first column that scrolls away."""
    page = tmp_path / "page.html"
    note = "<div class='admonition info' style='position: absolute; top: 0; left: 40px'>note</div>"
    table = "<table><tr><td>first</td><td><div style='width: 900px'>wide</div></td></tr></table>"
    scroller = f"<div class='md-typeset__scrollwrap' style='overflow: auto'>{table}</div>"
    page.write_text(
        "<!doctype html><body class='md-typeset'><div class='md-content__inner'>"
        f"<p style='width: 300px'>text</p>{note}{scroller}</div>"
    )
    browser.size(800, 600)
    found = laid_out(browser, page)
    assert found["notes"][0]["over"] and abs(found["middles"][0] - 400) > 2
    (wrong,) = browser.run(TABLES)
    assert wrong["left"] > 1 and wrong["clear"] != []
