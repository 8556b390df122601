"""The exercises of the built site, served over HTTP: editors appear, show their text, and run."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.docs.test_cells import IN_PAGE, ran, solution
from tests.docs.test_playground_page import Quiet
from tests.docs.test_replay import CHROMIUM, needs_chromium
from tests.docs.test_site import needs_a_site, site
from tests.support.chromium import Page, chromium

__all__ = ["site"]  # a fixture
pytestmark = [pytest.mark.slow, needs_chromium, needs_a_site]

# One as high as 40 rows scrolls: docs/javascripts/editor.js.
HIDES = """[...document.querySelectorAll(".exercise .editor-text")].filter((area) => {
  const row = parseFloat(getComputedStyle(area).lineHeight);
  return area.scrollHeight > area.clientHeight + 1 && area.clientHeight < 40 * row;
}).map((area) => area.ariaLabel)"""
WRAPS = """[...document.querySelectorAll(".exercise .editor-text")].filter((area) => {
  const row = parseFloat(getComputedStyle(area).lineHeight);
  return area.clientHeight > row * (area.value.split("\\n").length + 2);
}).length"""


@pytest.fixture(scope="module")
def exercises(site: Path) -> Iterator[str]:
    """The address of the page, as a server gives it: opened as a file it has no editors."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/tutorial/exercises/"
    server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(CHROMIUM, tmp_path_factory.mktemp("browser")) as page:
        yield page


def look(browser: Page, address: str, width: int) -> None:
    browser.size(width, 844, phone=width < 600)
    browser.open("about:blank")
    browser.open(address)
    browser.until("document.readyState === 'complete' && location.protocol === 'http:'")


@pytest.mark.parametrize("width", [1400, 390])
def test_each_editor_shows_all_of_its_text(browser: Page, exercises: str, width: int) -> None:
    look(browser, exercises, width)
    assert browser.run("document.querySelectorAll('.exercise textarea').length") == len(IN_PAGE)
    # Rows are counted when the width is known: after the first frame.
    browser.until(f"{HIDES}.length === 0")
    assert browser.run("document.documentElement.scrollWidth") <= width
    if width < 600:
        assert browser.run(WRAPS) > 0  # of a phone's narrow lines some wrap


def test_the_measure_notices_an_editor_that_hides_a_line(browser: Page, exercises: str) -> None:
    look(browser, exercises, 390)
    browser.until(f"{HIDES}.length === 0")
    browser.run("document.querySelector('.exercise .editor-text').style.height = '3em'")
    assert len(browser.run(HIDES)) == 1


def test_an_editor_runs_what_is_written(browser: Page, exercises: str) -> None:
    look(browser, exercises, 390)
    if browser.run("!window.oracle.supported"):
        pytest.skip(browser.run("window.oracle.why"))
    name = "allocator"
    where = f".exercise:has([aria-label='Your answer to {name}'])"
    assert ran(browser, where).startswith("Not")
    area = f"document.querySelector({json.dumps(where)}).querySelector('textarea')"
    before = browser.run(f"{area}.value")
    assert ran(browser, where, f"{before}\n{solution(name)}") == "Right."
    assert browser.problems == []
