"""The picture of guesses in Chromium: it shows what the oracle did, also of a reader's text."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from playground.guessing import TEXTS, run
from scripts import interactive, oracle_in_site, pyodide_core
from tests.docs.test_playground_page import Quiet
from tests.docs.test_replay import CHROMIUM, needs_chromium
from tests.meta.trees import ROOT
from tests.support.chromium import Page, chromium

SCRIPTS = ("elements.js", "oracle.js", "speculation.js")
SHOWN = """(() => {
  const all = (selector) => [...document.querySelectorAll(`.speculation ${selector}`)];
  const texts = (selector) => all(selector).map((one) => one.textContent);
  return {
    badge: all(".speculation-badge")[0].dataset.part, says: texts(".speculation-says")[0],
    at: texts(".speculation-at")[0], counts: texts(".speculation-counts")[0],
    words: texts(".speculation-words span:not(.is-draft)"),
    drafts: texts(".speculation-words .is-draft:not(.is-left)"),
    left: texts(".speculation-words .is-left"), match: texts(".speculation-words .is-match"),
    end: texts(".speculation-words .is-end"), source: texts(".speculation-words .is-source"),
    rows: all(".speculation-rows tbody tr")
      .map((row) => [...row.querySelectorAll("td")].map((cell) => cell.textContent)),
    kept: all(".speculation-rows .is-kept").length,
    blocks: all(".speculation-block").map((block) => ({
      block: Number(block.dataset.block), gone: block.classList.contains("is-gone"),
      cached: block.textContent.includes("◆"),
      cells: [...block.querySelectorAll(".speculation-cell")].map((cell) => cell.textContent),
      drafts: [...block.querySelectorAll(".is-draft")].map((cell) => cell.textContent),
      stale: [...block.querySelectorAll(".is-stale")].map((cell) => cell.textContent),
    })),
  };
})()"""
KEY = """document.querySelector(".speculation").dispatchEvent(
  new KeyboardEvent("keydown", {key: KEY, bubbles: true}))"""
WRITE = """(() => {
  const asked = ASKED, form = document.querySelector(".speculation-form");
  const [prompt, says, ...numbers] = form.querySelectorAll("input");
  [prompt.value, says.value] = [asked.prompt, asked.says ?? ""];
  const [k, shortest, longest] = [asked.guesses, asked.lookup_min, asked.lookup_max];
  [k ?? 3, shortest ?? 1, longest ?? 3].forEach((value, i) => { numbers[i].value = value; });
  form.requestSubmit();
})()"""
OPEN = """[...document.querySelectorAll(".speculation button")]
  .find((one) => one.textContent.startsWith("Write")).click()"""
STICKS_OUT = """(() => {
  const right = document.querySelector(".speculation").getBoundingClientRect().right;
  return [...document.querySelectorAll(".speculation *")]
    .filter((one) => !one.closest("table") && one.getBoundingClientRect().right > right + 1)
    .map((one) => one.className);
})()"""
PARTS = {"guess": ("guess", "verify", "keep"), "plain": ("plain",), "prompt": ("prompt",)}


def frames(found: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The part and the step of each frame, and what the page must show, made from the run."""
    tokens = drew = 0
    for number, step in enumerate(found["steps"], 1):
        for at, part in enumerate(PARTS[step["kind"]]):
            time = {"guess": 0, "verify": 1}.get(part, 2)
            if time == 2:
                tokens, drew = tokens + step["kept"], drew + bool(step["draws"])
            known = step["known"] + (step["kept"] if time == 2 else 0)
            start, size = step["match"] if time < 2 else (0, 0)
            words = found["words"]
            rows = [words[step["known"] - 1], *step["guesses"][: step["drafts"]]]
            yield (
                part,
                step,
                {
                    "badge": part,
                    "says": step["says"][at],
                    "step": f"step {number} of {len(found['steps'])}, ",
                    "sofar": f"So far: {tokens} token{'' if tokens == 1 else 's'} in {drew} step",
                    "spent": f"This step: {step['fed']} of {found['budget']} positions",
                    "words": words[:known],
                    "drafts": step["guesses"][: step["drafts"]] if time < 2 else [],
                    "left": step["guesses"][step["drafts"] :] if time < 2 else [],
                    "match": words[start : start + size],
                    "end": words[known - size : known] if size else [],
                    "fed": rows[: len(step["draws"])],
                    "drawn": ["?" if time == 0 else draw for draw in step["draws"]],
                    "kept": 0 if time == 0 else step["kept"],
                    "blocks": [
                        {
                            "block": one["block"],
                            "gone": time == 2 and not one["stays"],
                            "cached": one["cached"][time],
                            "cells": [word or "" for word in one["was" if time == 0 else "holds"]],
                        }
                        for one in step["blocks"]
                        if time or one["had"]
                    ],
                },
            )


def check(shown: dict[str, Any], part: str, step: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name in ("badge", "says", "words", "drafts", "left", "match", "end", "kept"):
        assert shown[name] == wanted[name], (name, shown["at"])
    assert shown["at"].startswith(wanted["step"]) and wanted["sofar"] in shown["counts"]
    assert shown["counts"].startswith(wanted["spent"])
    assert [row[1] for row in shown["rows"]] == wanted["fed"]
    assert [row[2] for row in shown["rows"]] == wanted["drawn"]
    assert [row[4] == "dropped" for row in shown["rows"]].count(False) == (
        len(wanted["drawn"]) if part == "guess" else wanted["kept"]
    )
    names = ("block", "gone", "cached", "cells")
    assert [{name: one[name] for name in names} for one in shown["blocks"]] == wanted["blocks"]
    in_blocks = [word for one in shown["blocks"] for word in one["drafts"]]
    assert in_blocks == (step["guesses"][: step["drafts"]] if part == "verify" else [])
    if part == "keep" and wanted["kept"] <= step["drafts"]:
        stale = [word for one in shown["blocks"] for word in one["stale"]]
        assert stale == step["guesses"][step["kept"] - 1 : step["drafts"]]
    if step["match"] and part == "guess":
        start, size = step["match"]
        behind = wanted["words"][start + size : start + size + len(step["guesses"])]
        assert shown["source"] == behind


def step_through(browser: Page, found: dict[str, Any]) -> None:
    """Forwards to the end, and back."""
    all_frames = list(frames(found))
    for frame in all_frames:
        check(browser.run(SHOWN), *frame)
        browser.run(KEY.replace("KEY,", '"ArrowRight",'))
    for frame in reversed(all_frames):
        check(browser.run(SHOWN), *frame)
        browser.run(KEY.replace("KEY,", '"ArrowLeft",'))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with the picture alone."""
    folder = tmp_path_factory.mktemp("speculation") / "site"
    for kind in ("javascripts", "stylesheets"):
        (folder / kind).mkdir(parents=True)
        for path in (ROOT / "docs" / kind).iterdir():
            (folder / kind / path.name).write_bytes(path.read_bytes())
    scripts = "".join(f'<script src="../javascripts/{name}"></script>' for name in SCRIPTS)
    styles = "".join(
        f'<link rel="stylesheet" href="../stylesheets/{name}.css">'
        for name in ("figures", "speculation")
    )
    (folder / "page").mkdir()
    (folder / "page" / "index.html").write_text(
        '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<link rel="icon" href="data:,">{styles}<style>html {{ font: 125% sans-serif; }}</style>'
        f'<body class="md-typeset">{interactive.speculation()}{scripts}',
        encoding="utf-8",
    )
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(CHROMIUM, tmp_path_factory.mktemp("browser")) as page:
        yield page


@needs_chromium
@pytest.mark.parametrize("width", [1400, 390])
def test_texts_are_stepped_through_without_python(browser: Page, folder: Path, width: int) -> None:
    browser.size(width, 900, phone=width < 1000)
    browser.open((folder / "page" / "index.html").as_uri())
    browser.until("!!document.querySelector('.speculation-block')")
    options = browser.run("document.querySelectorAll('.speculation option').length")
    assert options == len(TEXTS)  # a file cannot start Python
    for name, asked in TEXTS.items():
        choose = "const one = document.querySelector('.speculation select'); one.value = NAME;"
        browser.run(
            f"(() => {{ {choose.replace('NAME', json.dumps(name))}"
            "one.dispatchEvent(new Event('change')); })()"
        )
        step_through(browser, run(dict(asked)))
        assert browser.run(STICKS_OUT) == []
    browser.run(KEY.replace("KEY,", '"End",'))
    assert browser.run(SHOWN)["badge"] == "plain"
    browser.run(KEY.replace("KEY,", '"Home",'))
    assert browser.run(SHOWN)["badge"] == "prompt"
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert not [url for url in browser.requested if "oracle/" in url]
    assert browser.problems == []


@needs_chromium
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('at < step.kept ? "is-kept"', 'at <= step.kept ? "is-kept"'),
        ("if (at >= step.kept)", "if (at > step.kept)"),
        ("within(position, start, size)", "within(position, start + 1, size)"),
        ("(time === 0 ? was : holds)", "holds"),
        ("const gone = time === 2 && !stays;", "const gone = false;"),
    ],
)
def test_the_comparison_notices_a_page_that_shows_something_else(
    browser: Page, folder: Path, right: str, wrong: str
) -> None:
    script = folder / "javascripts" / "speculation.js"
    text = script.read_text("utf-8")
    assert text.count(right) == 1
    script.write_text(text.replace(right, wrong), encoding="utf-8")
    try:
        browser.open("about:blank")
        browser.open((folder / "page" / "index.html").as_uri())
        browser.until("!!document.querySelector('.speculation-block')")
        with pytest.raises(AssertionError):
            step_through(browser, run(dict(next(iter(TEXTS.values())))))
    finally:
        script.write_text(text, encoding="utf-8")


@pytest.mark.slow
@needs_chromium
def test_a_reader_s_own_text_is_served_by_the_oracle_in_the_page(
    browser: Page, folder: Path
) -> None:
    try:
        pyodide_core.fetched(pyodide_core.PYODIDE)
    except pyodide_core.NoCore as reason:
        pytest.skip(str(reason))
    oracle_in_site.on_post_build({"site_dir": str(folder)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        browser.size(1000, 900)
        browser.open(f"http://127.0.0.1:{server.server_port}/page/")
        browser.until("!!document.querySelector('.speculation-block')")
        browser.run(OPEN)
        own: list[dict[str, Any]] = [
            {"prompt": "🙂 <b>a</b> 🙂 <b>a</b>", "says": "🙂 <b>a</b> & 🙂", "guesses": 2},
            {"prompt": "a", "says": "b", "guesses": 8},
            {"prompt": "word " * 40, "says": "word " * 24, "guesses": 8, "lookup_max": 5},
            {"prompt": "a b a b", "says": "a b c", "guesses": 0},
        ]
        for asked in own:
            full = {"guesses": 3, "lookup_min": 1, "lookup_max": 3} | asked
            browser.run(WRITE.replace("ASKED", json.dumps(full)))
            ran = "JSON.parse(document.querySelector('.speculation').dataset.ran ?? '{}')"
            browser.until(f"{ran}.prompt === {json.dumps(full['prompt'])}")
            step_through(browser, run(full))
        last = browser.run(SHOWN)
        for bad in ({"prompt": " "}, {"prompt": "a " * 41}, {"prompt": "a", "says": "b " * 25}):
            browser.run(WRITE.replace("ASKED", json.dumps(bad)))
            wanted = run({"says": "", **bad})["error"]
            status = "document.querySelector('.speculation-status').textContent"
            browser.until(f"{status} === {json.dumps(wanted)}")
            assert browser.run(SHOWN) == last  # what was shown stays
        assert browser.problems == []
    finally:
        server.shutdown()
