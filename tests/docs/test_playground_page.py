"""The playground in Chromium, served over HTTP: the oracle runs in the page as it runs here."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from playground import session
from playground.scenes import SCENES
from scripts import interactive, oracle_in_site, pyodide_core
from tests.docs.test_replay import CHROMIUM, needs_chromium
from tests.docs.test_replay import SCRIPTS as REPLAY
from tests.meta.trees import ROOT
from tests.support.chromium import Page, chromium

SCRIPTS = (*REPLAY, "oracle.js", "playground.js")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def write_site(folder: Path) -> None:
    """A page with the playground alone, and what the site has for it."""
    for kind in ("javascripts", "stylesheets"):
        (folder / kind).mkdir(parents=True)
        for path in (ROOT / "docs" / kind).iterdir():
            (folder / kind / path.name).write_bytes(path.read_bytes())
    scripts = "".join(f'<script src="../javascripts/{name}"></script>' for name in SCRIPTS)
    styles = "".join(
        f'<link rel="stylesheet" href="../stylesheets/{name}.css">'
        for name in ("figures", "replay", "playground")
    )
    (folder / "page").mkdir()
    (folder / "page" / "index.html").write_text(
        '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<link rel="icon" href="data:,">{styles}<body data-md-color-scheme="default">'
        f"{interactive.playground('crowd', 'own-page')}{scripts}",
        encoding="utf-8",
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of it."""
    try:
        pyodide_core.fetched()
    except pyodide_core.NoCore as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("playground") / "site"
    write_site(folder)
    oracle_in_site.on_post_build({"site_dir": str(folder)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(CHROMIUM, tmp_path_factory.mktemp("browser")) as page:
        yield page


def said(browser: Page) -> str:
    return str(browser.run("document.querySelector('.playground-status').textContent"))


def change(browser: Page, label: str, value: object) -> None:
    """Types a value into the first field of that label."""
    browser.run(
        "(() => { const label = [...document.querySelectorAll('.playground-form label')]"
        f".find((one) => one.textContent.trim() === {json.dumps(label)});"
        f"const input = label.querySelector('input, select'); input.value = {json.dumps(value)};"
        "input.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )


def dumped(value: Any) -> str:
    """As JavaScript writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def address(settings: Any, moment: int) -> str:
    return f"#{urlencode({'play': json.dumps(settings), 'moment': moment})}"


def press(browser: Page, key: str, code: int) -> None:
    for kind in ("keyDown", "keyUp"):
        browser.ask("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code)


def shown(browser: Page) -> str:
    return str(browser.run("document.querySelector('.replay-count').textContent"))


def settled(browser: Page, settings: Any) -> None:
    """Waits until these settings have been run."""
    wanted = json.dumps(dumped(settings))
    browser.until(f"document.querySelector('.playground').dataset.ran === {wanted}", 60)


@needs_chromium
def test_a_reader_plays_breaks_and_shares(browser: Page, site: str) -> None:
    browser.size(1400, 1200)
    browser.open(f"{site}/page/")
    browser.until("!!document.querySelector('.playground-start')")
    assert not [url for url in browser.requested if "oracle/" in url]  # nothing before the button
    browser.run("document.querySelector('.playground-start').click()")
    settings: Any = json.loads(json.dumps(SCENES["crowd"]))
    settled(browser, settings)
    found = browser.run(
        f"window.oracle.call('playground.session', 'run', {json.dumps(settings)})"
        ".then((found) => JSON.stringify(found))"
    )
    assert found == dumped(session.run(settings))  # byte for byte
    press(browser, "ArrowRight", 39)  # at once: nothing has to be clicked first
    assert shown(browser) == "2 / 26"

    change(browser, "GPU blocks", 6)
    settings["gpu_blocks"] = 6
    settled(browser, settings)
    change(browser, "GPU blocks", 41)
    browser.until("document.querySelector('.playground-status').textContent.includes('got 41')")
    assert said(browser) == "gpu_blocks must be a whole number from 1 to 40, got 41"
    change(browser, "GPU blocks", 6)
    settled(browser, settings)
    browser.run("for (let i = 0; i < 3; i++) document.querySelector('.replay-forward').click()")
    browser.run("document.querySelector('.replay-back').click()")
    browser.until("location.hash.includes('moment=2')")
    shared = browser.run("location.href")
    assert json.loads(parse_qs(urlsplit(shared).fragment)["play"][0]) == settings

    browser.run("[...document.querySelectorAll('.playground-example')].at(4).click()")
    browser.until("!!document.querySelector('.playground-fell p')")
    assert "I10 falls in step 2" in browser.run(
        "document.querySelector('.playground-fell').textContent"
    )
    assert "an invariant falls" in browser.run(
        "document.querySelector('.replay-badge').textContent"
    )

    browser.open("about:blank")
    browser.open(shared)
    browser.until("!!document.querySelector('.playground')?.dataset.ran", 60)
    assert shown(browser).startswith("3 /")
    other = {"requests": [{"prompt": "To be or"}]}
    browser.run(f"location.hash = {json.dumps(address(other, 4))}")  # pasted over the old one
    settled(browser, other)
    assert shown(browser).startswith("5 /")
    browser.size(390, 844, phone=True)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    assert {urlsplit(url).netloc for url in browser.requested} <= {urlsplit(site).netloc, ""}
    assert browser.problems == []


def test_a_chapter_s_playground_leaves_the_address_to_the_chapter() -> None:
    assert "data-links" not in interactive.playground("crowd")
    assert "data-links" in interactive.playground("crowd", "own-page")


@needs_chromium
@pytest.mark.parametrize("play", [{"requests": [None]}, {"requests": [{}], "breaks": 5}, None])
def test_an_address_that_holds_no_settings_leaves_the_page_its_own(
    browser: Page, site: str, play: Any
) -> None:
    browser.open("about:blank")
    browser.open(f"{site}/page/{address(play, 2)}")
    browser.until("!!document.querySelector('.playground-start')")
    assert browser.run("document.querySelector('.playground-start').disabled") is False
    assert browser.problems == []


@needs_chromium
def test_a_page_without_python_says_so(
    browser: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing() -> Path:
        raise pyodide_core.NoCore("there is no npm here")

    write_site(tmp_path)
    monkeypatch.setattr(oracle_in_site, "fetched", nothing)
    oracle_in_site.on_post_build({"site_dir": str(tmp_path)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser.open(f"http://127.0.0.1:{server.server_port}/page/")
    browser.until("!!document.querySelector('.playground-start')")
    browser.run("document.querySelector('.playground-start').click()")
    browser.until("document.querySelector('.playground-status').textContent.includes('cannot')")
    assert said(browser).endswith("The recorded scenes work without it.")
    browser.open((tmp_path / "page" / "index.html").as_uri())
    browser.until("!!document.querySelector('.playground-status')?.textContent")
    assert "opened as a file cannot start Python" in said(browser)
    server.shutdown()
