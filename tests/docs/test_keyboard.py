"""Each interactive part by keyboard and screen reader, in Chromium: names, order, focus."""

import html
import json
import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from playground import session
from playground.scenes import SCENES
from scripts import interactive
from scripts.cells_in_pages import cells
from scripts.docs_hooks import replay
from tests.docs.test_playground_page import Quiet
from tests.docs.test_replay import CHROMIUM, needs_chromium
from tests.meta.trees import ROOT
from tests.support.accessible import MARKED, SHIFT, controls, press, walk
from tests.support.chromium import Page, chromium

pytestmark = [pytest.mark.slow, needs_chromium]
CONFIG = (ROOT / "mkdocs.yml").read_text("utf-8")
SCRIPTS = re.findall(r"javascripts/\w+\.js", CONFIG)
STYLES = re.findall(r"stylesheets/\w+\.css", CONFIG)
CODE = "```python\nwords = ['To', 'be']\n```\n\n```python\nprint(len(words))\n```\n"


def cell_parts() -> str:
    """Two cells of Python, as a page has them."""
    found = cells(CODE)
    blocks = "".join(
        f'<div class="highlight"><pre><code>{html.escape(one["code"])}\n</code></pre></div>'
        for one in found
    )
    return f'{blocks}<script type="application/json" class="cells">{json.dumps(found)}</script>'


PARTS = {
    "cells": cell_parts,
    "exercises": lambda: (
        interactive.variant() + interactive.exercise("allocator") + interactive.exercise("chunks")
    ),
    "journey": interactive.journey,
    "kv_calculator": interactive.kv_calculator,
    "playground": lambda: interactive.playground("crowd", "own-page"),
    "replay": replay,
    "small_journey": lambda: interactive.journey("small"),
    "speculation": interactive.speculation,
    "two_orders": interactive.two_orders,
}


def oracle() -> str:
    """Instead of Python in the page: what it would have answered."""
    answers = {"faults": session.faults(None), "run": session.run(SCENES["crowd"])}
    return (
        f"const ANSWERS = {json.dumps(answers)};"
        "window.oracle = { supported: true, why: '', load: async () => {},"
        "call: async (module, name) => structuredClone(ANSWERS[name]),"
        "run: (code) => new Promise((done) => { window.finish = () => done({printed: code}); }),"
        "stop: () => {} };"
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page for each part, with all of the site's own scripts and styles."""
    folder = tmp_path_factory.mktemp("parts")
    for kind in ("javascripts", "stylesheets"):
        (folder / kind).mkdir()
        for path in (ROOT / "docs" / kind).iterdir():
            (folder / kind / path.name).write_bytes(path.read_bytes())
    (folder / "javascripts" / "oracle.js").write_text(oracle(), encoding="utf-8")
    scripts = "".join(f'<script src="../{name}"></script>' for name in SCRIPTS)
    styles = "".join(f'<link rel="stylesheet" href="../{name}">' for name in STYLES)
    for name, part in PARTS.items():
        (folder / name).mkdir()
        (folder / name / "index.html").write_text(
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>A part</title>'
            f'<link rel="icon" href="data:,">{styles}<body data-md-color-scheme="default">'
            f'<input class="elsewhere" aria-label="Elsewhere"><div class="md-content md-typeset">'
            f"{part()}</div>{scripts}",
            encoding="utf-8",
        )
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(CHROMIUM, tmp_path_factory.mktemp("browser")) as page:
        page.size(1400, 1000)
        yield page


OPENED = {
    "cells": "[...document.querySelectorAll('.cell-edit')].map((one) => one.click())",
    "playground": "document.querySelector('.playground-start').click()",
    "speculation": "document.querySelector('.speculation button').click()",
    "small_journey": "document.querySelector('.journey button[title=Pause]')?.click()",
}
"""What brings all the controls of a part to light."""
WAITS = {"playground": "!!document.querySelector('.playground').dataset.ran"}


def open_part(browser: Page, site: str, name: str) -> None:
    browser.open(f"{site}/{name}/")
    browser.until(f"document.readyState === 'complete' && location.pathname === '/{name}/'")
    browser.run(OPENED.get(name, "0") + ", 0")
    browser.until(WAITS.get(name, "true"))


@pytest.mark.parametrize("name", PARTS)
def test_each_control_has_a_name(browser: Page, site: str, name: str) -> None:
    open_part(browser, site, name)
    found = controls(browser)
    assert [role for role, said in found if not said] == []
    assert len(found) > 3
    assert browser.problems == []


def test_the_tree_shows_a_control_without_a_name(browser: Page, site: str) -> None:
    open_part(browser, site, "two_orders")
    browser.run("document.querySelector('.two-orders-steps button').removeAttribute('aria-label')")
    browser.run("document.querySelector('.two-orders-steps button').removeAttribute('title')")
    browser.run("document.querySelector('.two-orders-steps button').textContent = ''")
    assert ("button", "") in controls(browser)


@pytest.mark.parametrize("name", PARTS)
def test_tab_reaches_each_control_in_order_and_the_focus_is_seen(
    browser: Page, site: str, name: str
) -> None:
    open_part(browser, site, name)
    found = walk(browser)
    assert [one["stop"] for one in found] == list(range(browser.run(MARKED)))
    assert [one["at"] for one in found[1:] if one["outline"] < 1 or not one["seen"]] == []


def test_the_walk_notices_a_trap_a_gap_and_a_focus_that_is_not_seen(
    browser: Page, site: str
) -> None:
    open_part(browser, site, "two_orders")
    trap = "document.querySelector('.two-orders select')"
    browser.run(f"{trap}.addEventListener('keydown', (event) => event.preventDefault())")
    assert len({one["stop"] for one in walk(browser)}) == 2 < browser.run(MARKED)
    open_part(browser, site, "two_orders")
    browser.run(f"{trap}.tabIndex = 1")
    assert [one["stop"] for one in walk(browser)][:2] == [0, 2]
    open_part(browser, site, "two_orders")
    browser.run(f"{trap}.style.outline = 'none'")
    assert [one["outline"] > 0 for one in walk(browser)][:3] == [True, False, True]


def test_escape_leaves_the_editor(browser: Page, site: str) -> None:
    open_part(browser, site, "exercises")
    area = "document.querySelector('.exercise textarea')"
    browser.run(f"{area}.focus(), {area}.setSelectionRange(0, 0)")
    press(browser, "Tab")
    assert browser.run(f"{area}.value.startsWith('    ') && document.activeElement === {area}")
    press(browser, "Escape")
    press(browser, "Tab")
    assert browser.run("document.activeElement.textContent") == "Check"
    press(browser, "Tab", SHIFT)
    press(browser, "Tab", SHIFT)
    assert browser.run(
        "document.activeElement === document.querySelector('.exercise-variant input')"
    )
    hint = f"document.getElementById({area}.getAttribute('aria-describedby')).textContent"
    assert "Esc" in browser.run(hint)


def test_the_button_that_runs_keeps_the_focus(browser: Page, site: str) -> None:
    open_part(browser, site, "exercises")
    browser.run("document.querySelector('.editor-run').focus()")
    press(browser, "Enter")
    browser.until("document.querySelector('.editor-run').ariaDisabled === 'true'")
    browser.until("typeof window.finish === 'function'")
    press(browser, "Tab")
    assert browser.run("document.activeElement.textContent") == "Stop"
    browser.run("window.finish()")
    browser.until("document.querySelector('.editor-run').ariaDisabled === 'false'")
    assert browser.run("document.activeElement === document.querySelector('.editor-run')")
    said = browser.run("document.querySelector('.editor [role=status]').textContent")
    assert "class Allocator" in said


AT = {
    "journey": ".journey-number",
    "playground": ".replay-count",
    "replay": ".replay-count",
    "speculation": ".speculation-at",
    "two_orders": ".two-orders-at",
}
"""Where a part says how far it is."""
FIELDS = "input:not([type=checkbox]):not([type=radio]):not([type=range]):not([type=number])"


@pytest.mark.parametrize("name", AT)
def test_shortcuts_do_not_fire_while_one_types(browser: Page, site: str, name: str) -> None:
    """In any field of the part, in one elsewhere in the page, and with a browser's own keys."""
    open_part(browser, site, name)
    at = f"document.querySelector('{AT[name]}').textContent"
    before = browser.run(at)
    count = browser.run(
        f"window.fields = document.querySelectorAll('{FIELDS}, textarea'), fields.length"
    )
    for number in range(count):
        browser.run(f"window.fields[{number}].focus(), 0")
        length = browser.run(f"window.fields[{number}].value.length")
        for key in ("ArrowRight", "e", " ", "End"):
            press(browser, key)
        assert browser.run(at) == before
        assert browser.run(f"window.fields[{number}].value.length") == length + 2
    browser.run("document.activeElement.blur()")
    shown = browser.run(f"document.querySelector('.{name.replace('_', '-')} button').focus(), {at}")
    for modifier in (1, 2, 4):  # Alt, Control, Meta: back in the history, by words
        press(browser, "ArrowRight", modifier)
    assert browser.run(at) == shown


@pytest.mark.parametrize("name", AT)
def test_arrow_keys_step_where_nothing_is_typed(browser: Page, site: str, name: str) -> None:
    open_part(browser, site, name)
    root = f"document.querySelector('.{name.replace('_', '-')}')"
    at = f"document.querySelector('{AT[name]}').textContent"
    browser.run(f"{root}.querySelector('button').focus()")
    before = browser.run(at)
    press(browser, "ArrowRight")
    assert browser.run(at) != before


ACTS: dict[str, tuple[str, str]] = {
    "journey": (
        "[aria-live=polite]",
        "document.querySelector('[title=\"One stop forward\"]').click()",
    ),
    "kv_calculator": (
        "[role=status]",
        "(() => { const one = document.querySelector('input[type=range]'); one.value = 12;"
        "one.dispatchEvent(new Event('input')); })()",
    ),
    "playground": (
        ".replay [aria-live=polite]",
        "document.querySelector('.replay-forward').click()",
    ),
    "replay": ("[aria-live=polite]", "document.querySelector('.replay-forward').click()"),
    "speculation": (
        "[aria-live=polite]",
        "document.querySelector('.speculation').dispatchEvent("
        "new KeyboardEvent('keydown', {key: 'ArrowRight'}))",
    ),
    "two_orders": (
        "[role=status]",
        "document.querySelector('.two-orders [title=\"One step forward\"]').click()",
    ),
}
"""The live region of a part, and what makes it say something."""


@pytest.mark.parametrize("name", ACTS)
def test_a_live_region_says_what_changes(browser: Page, site: str, name: str) -> None:
    """It is there before, has no control in it, and says little at a time."""
    open_part(browser, site, name)
    where, act = ACTS[name]
    region = f"document.querySelector('{where}')"
    browser.run(f"window.region = {region}, 0")
    before = browser.run("window.region.textContent")
    browser.run(f"{act}, 0")
    after = browser.run("window.region.textContent")
    assert after != before and 0 < len(after) < 600
    assert browser.run(f"window.region === {region} && window.region.isConnected")
    assert browser.run("window.region.querySelector('button, input, select') === null")
    assert browser.run("window.region.closest('[hidden]') === null")


def test_a_moving_picture_is_not_read_aloud(browser: Page, site: str) -> None:
    open_part(browser, site, "small_journey")
    lives: Any = browser.run(
        "document.querySelectorAll('[aria-live=polite], [role=status]').length"
    )
    assert lives == 0
