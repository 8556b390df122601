"""The front page's moving picture: its frames are the oracle's, and the page shows them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts import interactive
from scripts.tutorial import arrivals
from tests.docs.test_replay import CHROMIUM, needs_chromium
from tests.meta.trees import ROOT
from tests.support.chromium import Page, chromium

FRAMES = arrivals.played()
SHOWN = """[...document.querySelectorAll(".arrivals-card")].map((card) => ({
  name: card.dataset.card,
  counts: Object.fromEntries([...card.querySelectorAll("dd")]
    .map((one) => [one.dataset.count, Number(one.textContent)])),
  says: card.querySelector(".arrivals-memory").getAttribute("aria-label"),
  kept: [...card.querySelectorAll(".arrivals-box")].map((box) => Number(box.textContent)),
  filled: [...card.querySelectorAll(".arrivals-box i")].map((one) => parseFloat(one.style.width)),
}))"""
STEP = "document.querySelector('.arrivals input').value"
BUTTON = "document.querySelector('.arrivals button')"


@pytest.mark.parametrize("name", FRAMES)
def test_memory_holds_what_requests_store(name: str) -> None:
    for frame in FRAMES[name]:
        kept = []
        for number, stored, *where in frame["requests"]:
            one = arrivals.REQUESTS[number]
            assert one.prompt_len <= stored < one.prompt_len + one.output_len
            if name == "paged":
                assert len(where) == -(-stored // arrivals.BLOCK)
                kept += where
            else:
                (start,) = where
                kept += range(start, start + arrivals.LONGEST)
        limit = arrivals.SLOTS // (arrivals.BLOCK if name == "paged" else 1)
        assert len(set(kept)) == len(kept) and set(kept) <= set(range(limit))


@pytest.mark.parametrize("name", FRAMES)
def test_every_token_is_served_once(name: str) -> None:
    total = sum(one.output_len for one in arrivals.REQUESTS)
    served = [frame["served"] for frame in FRAMES[name]]
    assert served == sorted(served) and served[-1] == total
    for step, frame in enumerate(FRAMES[name], 1):
        arrived = min(step, arrivals.COUNT)
        assert frame["running"] + frame["waiting"] + frame["finished"] == arrived
        assert frame["waiting"] >= 0
    # A request in flight is sent a token a step, so a step serves as many as were running in it.
    for before, after in zip(FRAMES[name], FRAMES[name][1:], strict=False):
        ended = after["finished"] - before["finished"]
        assert after["served"] - before["served"] <= after["running"] + ended
    assert FRAMES[name][-1]["finished"] == arrivals.COUNT


def test_the_sentence_says_what_the_frames_say() -> None:
    reserved, paged = FRAMES["reserved"], FRAMES["paged"]
    numbers = [int(one) for one in re.findall(r"\d+", arrivals.sentence(arrivals.summary()))]
    assert numbers == [
        arrivals.COUNT, arrivals.SLOTS, max(one["running"] for one in paged),
        paged[-1]["served"], len(paged), max(one["running"] for one in reserved),
        reserved[len(paged) - 1]["served"],
    ]  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(CHROMIUM, tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def page(tmp_path: Path) -> Path:
    folder = ROOT / "docs"
    styles = "".join(
        f'<link rel="stylesheet" href="{(folder / "stylesheets" / name).as_uri()}.css">'
        for name in ("look", "figures", "arrivals")
    )
    scripts = "".join(
        f'<script src="{(folder / "javascripts" / name).as_uri()}.js"></script>'
        for name in ("elements", "arrivals")
    )
    file = tmp_path / "page.html"
    file.write_text(
        '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"{styles}<body class='md-typeset' style='font: 16px sans-serif'>"
        f"{interactive.arrivals()}{scripts}",
        encoding="utf-8",
    )
    return file


def motion(browser: Page, wanted: bool) -> None:
    value = "no-preference" if wanted else "reduce"
    feature = {"name": "prefers-reduced-motion", "value": value}
    browser.ask("Emulation.setEmulatedMedia", features=[feature])


def open_page(browser: Page, page: Path) -> None:
    browser.open("about:blank")
    browser.open(page.as_uri())
    browser.until("document.querySelectorAll('.arrivals-box i').length > 0")


def wanted(name: str, frame: dict[str, Any]) -> dict[str, Any]:
    size = arrivals.BLOCK if name == "paged" else arrivals.LONGEST
    kept, filled = [0] * (arrivals.SLOTS // size), [0.0] * (arrivals.SLOTS // size)
    for number, stored, *where in frame["requests"]:
        for i, place in enumerate(where):
            box = place if name == "paged" else place // size
            kept[box] = number + 1
            filled[box] = 100 * min(size, stored - i * size) / size
    return {"kept": kept, "filled": filled}


@needs_chromium
@pytest.mark.parametrize("width", [1400, 390])
def test_the_page_shows_each_frame_and_stands_still_where_no_motion_is_wanted(
    browser: Page, page: Path, width: int
) -> None:
    browser.size(width, 900, phone=width < 1000)
    motion(browser, False)
    open_page(browser, page)
    last = len(FRAMES["paged"])
    assert browser.run(f"{STEP} === '{last}' && {BUTTON}.textContent === 'Play'")
    for step in range(0, last, 7):
        slide = "(() => { const one = document.querySelector('.arrivals input'); one.value = AT;"
        slide += "one.dispatchEvent(new Event('input')); })()"
        browser.run(slide.replace("AT", str(step + 1)))
        for card in browser.run(SHOWN):
            frame = FRAMES[card["name"]][step]
            assert card["counts"] == {key: frame[key] for key in ("served", "running", "waiting")}
            assert (card["kept"], card["filled"]) == tuple(wanted(card["name"], frame).values())
            stored = sum(tokens for _, tokens, *_ in frame["requests"])
            assert f"for {frame['running']} requests, which have stored {stored}." in card["says"]
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.problems == []


@needs_chromium
def test_it_moves_and_can_be_paused(browser: Page, page: Path) -> None:
    browser.size(1000, 900)
    motion(browser, True)
    open_page(browser, page)
    browser.until(f"Number({STEP}) > 2")
    browser.run(f"{BUTTON}.click()")
    stopped = browser.run(STEP)
    browser.run("new Promise((done) => setTimeout(done, 700))")
    assert browser.run(STEP) == stopped and browser.run(f"{BUTTON}.textContent") == "Play"
    browser.run(f"{BUTTON}.click()")
    browser.until(f"Number({STEP}) > {stopped}")
    assert browser.problems == []


def test_the_front_page_has_it_and_three_doors() -> None:
    text = (ROOT / "docs" / "index.md").read_text("utf-8")
    assert "{{ arrivals }}" in text
    assert re.findall(r"^- \*\*(\w+)\*\*", text, re.MULTILINE) == ["Learn", "Use", "Prove"]
    known = json.loads(interactive.arrivals().split(">")[2].split("</script")[0])
    assert known["frames"]["paged"] == FRAMES["paged"]
