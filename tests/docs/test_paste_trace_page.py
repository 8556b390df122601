"""Paste your trace, in Chromium: what Python finds of it is said, linked and shown in the map."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from playground.check_trace import check
from scripts import interactive, pyodide_core
from tests.docs.test_playground_page import CHROMIUM, REPLAY, needs_chromium, served, write_site
from tests.meta.trees import ROOT
from tests.support.chromium import Page, chromium

TRACES = {
    path.stem: json.loads(path.read_text("utf-8"))
    for path in sorted((ROOT / "examples" / "traces").glob("*.json"))
}
STATUS = "document.querySelector('.playground-status').textContent"
VERDICT = "document.querySelector('.paste-verdict').textContent"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Page, str]]:
    """A browser, and the address of the page."""
    try:
        pyodide_core.fetched(pyodide_core.PYODIDE)
    except pyodide_core.NoCore as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("traces") / "site"
    write_site(folder, interactive.paste_trace(), (*REPLAY, "oracle.js", "paste_trace.js"))
    profile = tmp_path_factory.mktemp("browser")
    with served(folder) as address, chromium(CHROMIUM, profile) as browser:
        yield browser, f"{address}/page/"


def paste(browser: Page, text: str) -> None:
    browser.run(f"document.querySelector('.paste-trace textarea').value = {json.dumps(text)}")
    browser.run("document.querySelector('.paste-trace .playground-start').click()")


@pytest.mark.slow
@needs_chromium
def test_a_reader_pastes_a_trace_and_sees_what_fell(page: tuple[Page, str]) -> None:
    browser, address = page
    browser.size(1400, 900)
    browser.open(address)
    browser.until("!!document.querySelector('.paste-trace textarea')")
    samples = "[...document.querySelectorAll('.playground-buttons')].at(-1).children"
    names = browser.run(f"[...{samples}].map((one) => one.textContent)")
    assert names == [name.replace("-", " ") for name in TRACES]
    assert not [url for url in browser.requested if "oracle/" in url]

    broken = copy.deepcopy(TRACES["oracle-preemption"])
    broken["steps"][4]["refs"][2] += 1
    paste(browser, json.dumps(broken))
    browser.until(f"{STATUS}.includes('fell.')")
    found = check(broken)
    assert f"1 of {len(found['checked'])} invariants fell" in browser.run(STATUS)
    [fell] = found["fell"]
    said = browser.run(VERDICT)
    assert f"I1 fell in step 5: {fell['says']}. {fell['sentence']}" in said
    link = browser.run("document.querySelector('.paste-fell a').href")
    assert link.endswith("/correctness/#blocks-and-tables")
    for name, why in found["not_checked"].items():
        assert f"{name}: not checked, {why}." in said
    badge = "document.querySelector('.replay-badge').textContent"
    assert browser.run(badge) == "step 5 · an invariant falls"
    first = "document.querySelector('.replay-first').click()"
    browser.run(first)
    browser.run("document.querySelector('.paste-fell button').click()")
    assert browser.run(badge) == "step 5 · an invariant falls"
    blocks = "document.querySelectorAll('.replay-memory [data-gpu]').length"
    assert browser.run(blocks) == broken["num_gpu_blocks"]

    for name, trace in TRACES.items():
        browser.run(f"[...{samples}][{list(TRACES).index(name)}].click()")
        title = f"{trace['engine']['name']} {trace['engine']['version']}"
        browser.until(f"{STATUS}.includes({json.dumps(title)})")
        expected = check(trace)
        for one in expected["fell"]:
            assert f"{one['invariant']} fell in step {one['step']}: " in browser.run(VERDICT)
        total = len(expected["trace"]["moments"])
        count = "document.querySelector('.replay-count').textContent"
        assert browser.run(count).endswith(f"/ {total}")

    paste(browser, "[")
    browser.until(f"{STATUS}.startsWith('This is no JSON')")
    paste(browser, '{"engine": 1}')
    browser.until(f"{STATUS}.startsWith('Not checked')")
    assert browser.run(STATUS) == "Not checked: the trace lacks 'block_size'."
    assert browser.run("document.querySelector('.paste-trace .replay').hidden")
    browser.size(390, 844, phone=True)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    assert browser.problems == []


@needs_chromium
@pytest.mark.slow
def test_a_page_that_cannot_have_python_says_so(page: tuple[Page, str], tmp_path: Path) -> None:
    browser, _ = page
    write_site(tmp_path, interactive.paste_trace(), (*REPLAY, "oracle.js", "paste_trace.js"))
    browser.open((tmp_path / "page" / "index.html").as_uri())
    browser.until("!!document.querySelector('.playground-status')?.textContent")
    assert "opened as a file cannot start Python" in browser.run(STATUS)
    assert browser.run("document.querySelector('.paste-trace .playground-start').disabled")
