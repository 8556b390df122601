"""The model that speaks, in Chromium: stories computed before, and with Python any prompt."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from playground.speaking import EVENTS, search, speak
from scripts import interactive, oracle_in_site, pyodide_core
from tests.docs.test_playground_page import Quiet
from tests.docs.test_replay import CHROMIUM, needs_chromium
from tests.meta.trees import ROOT
from tests.support.chromium import Page, chromium

STORY: dict[str, Any] = {"prompt": "once there was a red fox named ann .", "words": 46, "at": 7}
SEARCH: dict[str, Any] = {"prompt": "once there was a", "words": 16, "beams": 3}
SPEECH, BEAMS = (f"document.querySelectorAll('.speaking')[{i}]" for i in range(2))
SHOWN = """((root) => ({
  said: [...root.querySelectorAll(".is-said")].map((one) => one.textContent),
  other: [...root.querySelectorAll(".is-other")].length,
  status: root.querySelector(".speaking-status").textContent,
  best: [...root.querySelectorAll(".speaking-best li span:first-child")].map((one) => one.textContent),
  table: [...root.querySelectorAll(".speaking-table li")].map((one) => one.textContent),
  pool: Object.fromEntries([...root.querySelectorAll(".speaking-block")].map((block) => [
    block.dataset.block,
    {words: [...block.querySelectorAll("i")].map((one) => one.textContent),
     free: block.classList.contains("is-free"), poisoned: block.classList.contains("is-poisoned"),
     who: block.querySelector(".speaking-who").textContent},
  ])),
  rows: [...root.querySelectorAll(".speaking-beams tbody tr")]
    .map((row) => [...row.querySelectorAll("td")].map((cell) => cell.textContent)),
}))"""  # noqa: E501
SLIDE = """(() => { const one = ROOT.querySelector("input[type=range]");
  one.value = STEP; one.dispatchEvent(new Event("input")); })()"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with the two pictures alone."""
    folder = tmp_path_factory.mktemp("speaking") / "site"
    for kind in ("javascripts", "stylesheets"):
        (folder / kind).mkdir(parents=True)
        for path in (ROOT / "docs" / kind).iterdir():
            (folder / kind / path.name).write_bytes(path.read_bytes())
    names = ("elements", "oracle", "speaking")
    scripts = "".join(f'<script src="../javascripts/{name}.js"></script>' for name in names)
    styles = "".join(
        f'<link rel="stylesheet" href="../stylesheets/{name}.css">'
        for name in ("look", "figures", "speaking")
    )
    (folder / "page").mkdir()
    (folder / "page" / "index.html").write_text(
        '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<link rel="icon" href="data:,">{styles}<style>html {{ font: 125% sans-serif; }}</style>'
        f"<body class='md-typeset'>{interactive.speaking()}{interactive.speaking('search')}"
        f"{scripts}",
        encoding="utf-8",
    )
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(CHROMIUM, tmp_path_factory.mktemp("browser")) as page:
        yield page


def go(browser: Page, root: str, step: int) -> Any:
    browser.run(SLIDE.replace("ROOT", root).replace("STEP", str(step)))
    return browser.run(f"{SHOWN}({root})")


def ask(browser: Page, event: str) -> None:
    browser.run(f"{SPEECH}.querySelector('[data-event={json.dumps(event)}]').click()")
    browser.until(f"JSON.parse({SPEECH}.dataset.ran).event === {json.dumps(event)}")


def check_speech(browser: Page, found: dict[str, Any]) -> None:
    """Each step as the oracle made it."""
    pool: dict[int, Any] = {}
    for number, step in enumerate(found["steps"]):
        pool |= step["changed"]
        shown = go(browser, SPEECH, number)
        said = [one["word"] for one in found["steps"][: number + 1]]
        others = [a != b for a, b in zip(said, found["alone"], strict=False)]
        assert shown["said"] == said and shown["other"] == sum(others)
        assert shown["best"] == [word for word, _ in step["best"]]
        assert shown["table"] == [f"{i} → {block}" for i, block in enumerate(step["table"])]
        for block, (refs, *words) in pool.items():
            its = shown["pool"][str(block)]
            assert its["words"] == [word or "·" for word in words]
            assert (its["free"], its["poisoned"]) == (refs == 0, "☠" in words)
            assert its["who"].startswith("logical") == (block in step["table"])


def check_search(browser: Page, found: dict[str, Any]) -> None:
    last = len(found["steps"]) - 1
    for number, step in enumerate(found["steps"]):
        shown = go(browser, BEAMS, number)
        beams = found["ended"] if number == last else step["beams"]
        assert [(row[1], row[2]) for row in shown["rows"]] == [
            (" ".join(one["words"]), f"{one['score']:.2f}") for one in beams
        ]


@needs_chromium
@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.slow
def test_it_speaks_without_python(browser: Page, folder: Path, width: int) -> None:
    browser.size(width, 900, phone=width < 1000)
    browser.open("about:blank")
    browser.open((folder / "page" / "index.html").as_uri())
    browser.until("document.querySelectorAll('.speaking-block').length > 0")
    for event in EVENTS if width > 1000 else ("free-early",):
        ask(browser, event)
        found = speak(STORY | {"event": event})
        check_speech(browser, found)
        status = browser.run(f"{SPEECH}.querySelector('.speaking-status').textContent")
        assert status.startswith(found["says"])
        assert ("equal, bit for bit" in status) == (event in ("poison", "move"))
        assert ("from other logits" in status) == (event == "free-early")
    check_search(browser, search(SEARCH))
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert not [url for url in browser.requested if "oracle/" in url]
    assert browser.problems == []


@needs_chromium
def test_play_goes_on_by_itself(browser: Page, folder: Path) -> None:
    browser.size(1000, 900)
    browser.open("about:blank")
    browser.open((folder / "page" / "index.html").as_uri())
    browser.until("document.querySelectorAll('.speaking-block').length > 0")
    play = f"[...{SPEECH}.querySelectorAll('button')].find((one) => one.textContent === 'Play')"
    browser.run(f"{play}.click()")
    browser.until(f"{SPEECH}.querySelectorAll('.is-said').length === 3")


@pytest.mark.slow
@needs_chromium
def test_a_reader_s_own_prompt_is_answered_in_the_page(browser: Page, folder: Path) -> None:
    try:
        pyodide_core.fetched(pyodide_core.PYODIDE)
    except pyodide_core.NoCore as reason:
        pytest.skip(str(reason))
    oracle_in_site.on_post_build({"site_dir": str(folder)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    write = "ROOT.querySelector('input[type=text]').value = TEXT;"
    submit = "ROOT.querySelector('form').requestSubmit()"

    def send(root: str, text: str) -> None:
        script = f"(() => {{ {write} {submit} }})()"
        browser.run(script.replace("ROOT", root).replace("TEXT", json.dumps(text)))

    try:
        browser.size(1000, 900)
        browser.open(f"http://127.0.0.1:{server.server_port}/page/")
        browser.until("document.querySelectorAll('.speaking-block').length > 0")
        prompt = "there was once a black owl named leo ."
        for root, function, asked in ((SPEECH, speak, STORY), (BEAMS, search, SEARCH)):
            send(root, prompt)
            browser.until(f"JSON.parse({root}.dataset.ran).prompt === {json.dumps(prompt)}")
            check = check_speech if root == SPEECH else check_search
            check(browser, function(asked | {"prompt": prompt}))
        ask(browser, "free-early")
        check_speech(browser, speak(STORY | {"prompt": prompt, "event": "free-early"}))
        send(SPEECH, "a dragon")
        status = f"{SPEECH}.querySelector('.speaking-status').textContent"
        browser.until(f"{status} === 'the model does not know dragon'")
        assert browser.problems == []
    finally:
        server.shutdown()
