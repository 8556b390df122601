"""The playground in Chromium, served over HTTP: the oracle runs in the page as it runs here."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from playground import lines, session
from playground.breaks import System
from playground.scenes import SCENES, TITLES
from playground.settings import scenario_of
from playground.trace import moments
from playground.watched_run import WatchedRun
from reference.blocks import BlockManager
from reference.scheduler_state import SchedulerOutput
from scripts import interactive, oracle_in_site, pyodide_core
from tests.docs.test_replay import CHROMIUM, needs_chromium
from tests.docs.test_replay import SCRIPTS as REPLAY
from tests.meta.trees import ROOT
from tests.support.chromium import Page, chromium

SCRIPTS = (
    *REPLAY, "oracle.js", "guess.js", "code_lit_drawing.js", "code_lit.js", "playground_form.js",
    "playground.js",
)  # fmt: skip


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def write_site(
    folder: Path, body: str | None = None, scripts_of_it: tuple[str, ...] = SCRIPTS
) -> None:
    """A page with the playground alone (or that body), and what the site has for it."""
    for kind in ("javascripts", "stylesheets"):
        (folder / kind).mkdir(parents=True)
        for path in (ROOT / "docs" / kind).iterdir():
            (folder / kind / path.name).write_bytes(path.read_bytes())
    scripts = "".join(f'<script src="../javascripts/{name}"></script>' for name in scripts_of_it)
    body = body or interactive.playground("crowd", "own-page")
    styles = "".join(
        f'<link rel="stylesheet" href="../stylesheets/{name}.css">'
        for name in ("figures", "replay", "playground", "code_lit")
    )
    (folder / "page").mkdir()
    (folder / "page" / "index.html").write_text(
        '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<link rel="icon" href="data:,">{styles}<body data-md-color-scheme="default">'
        f"{body}{scripts}",
        encoding="utf-8",
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of it."""
    try:
        pyodide_core.fetched(pyodide_core.PYODIDE)
    except pyodide_core.NoCore as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("playground") / "site"
    write_site(folder)
    with served(folder) as address_of_it:
        yield address_of_it


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of a site, to which Python and the oracle are added."""
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
        f".find((one) => one.querySelector('span').textContent === {json.dumps(label)});"
        f"const input = label.querySelector('input, select'); input.value = {json.dumps(value)};"
        "input.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )


def dumped(value: Any) -> str:
    """As JavaScript writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def address(settings: Any, moment: int) -> str:
    return f"#{urlencode({'play': json.dumps(settings), 'moment': moment})}"


def press(browser: Page, key: str, code: int, *, shift: bool = False) -> None:
    for kind in ("keyDown", "keyUp"):
        browser.ask(
            "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
            modifiers=8 if shift else 0,
        )  # fmt: skip


def shown(browser: Page) -> str:
    return str(browser.run("document.querySelector('.replay-count').textContent"))


def settled(browser: Page, settings: Any) -> None:
    """Waits until these settings have been run."""
    wanted = json.dumps(dumped(settings))
    browser.until(f"document.querySelector('.playground')?.dataset.ran === {wanted}")


def guess_a_step(browser: Page) -> None:
    """From the first moment of `crowd`: A is guessed right, B is not."""
    box, form = ".guess > label input", ".guess-form"
    browser.run(f"document.querySelector('{box}').click()")
    press(browser, "ArrowRight", 39, shift=True)
    assert shown(browser) == "4 / 26"  # step 2 is hidden
    assert browser.run(f"document.activeElement === document.querySelector('{form} input')")
    chosen = f"{form} [name=guess-${{name}}][value='${{fate}}']"
    choose = f"(name, fate) => document.querySelector(`{chosen}`).click()"
    browser.run(f"document.querySelector('{form} button').click()")  # nothing is chosen yet
    assert shown(browser) == "4 / 26"
    browser.run(f"(({choose})('A', 'computes'), ({choose})('B', 'is preempted'))")
    browser.run(f"document.querySelector('{form} button').click()")
    assert shown(browser) == "5 / 26"
    score = browser.run("document.querySelector('.guess > p').textContent")
    assert score == "B computes. Score: 1 of 2."
    browser.run(f"document.querySelector('{box}').click()")


def fates(settings: Any) -> list[list[list[str]]]:
    """What becomes of each request in each step, read off the scheduler's plans."""
    run = WatchedRun(scenario_of(settings), System())
    plan, plans = run.scheduler.schedule, []

    def schedule() -> SchedulerOutput:
        there = sorted(run.scheduler.groups)
        plans.append((there, plan()))
        return plans[-1][1]

    run.scheduler.schedule = schedule  # type: ignore[method-assign]
    list(moments(run))

    def fate(name: str, output: SchedulerOutput, after: list[str]) -> str:
        if name not in after:
            return "ends"
        if name in dict(output.preempted):
            return "is preempted"
        computed = [entry.group.request_id for entry in output.scheduled]
        return "computes" if name in computed else "waits"

    ends = [there for there, _ in plans[1:]] + [[]]
    return [
        [[name, fate(name, output, after)] for name in there]
        for (there, output), after in zip(plans, ends, strict=True)
    ]


@needs_chromium
def test_guesses_are_checked_by_what_the_scheduler_did(browser: Page, tmp_path: Path) -> None:
    write_site(tmp_path)
    browser.open((tmp_path / "page" / "index.html").as_uri())
    browser.until("!!window.Guess")
    parts = {"requests": [{"prompt": "To be or not", "n": 3}], "gpu_blocks": 6}
    for settings in (*SCENES.values(), {**SCENES["crowd"], "gpu_blocks": 6}, parts):
        shown = session.run(settings)["trace"]["moments"]
        steps = sorted({one["step"] for one in shown})
        script = f"((moments) => {steps}.map((step) => window.Guess.fatesOf(moments, step)))"
        assert browser.run(f"{script}({json.dumps(shown)})") == fates(settings)


@pytest.mark.slow
@needs_chromium
def test_a_reader_plays_breaks_and_shares(browser: Page, site: str) -> None:
    browser.size(1400, 1200)
    browser.open(f"{site}/page/")
    settings: Any = json.loads(json.dumps(SCENES["crowd"]))
    settled(browser, settings)  # as it was recorded
    assert shown(browser) == "1 / 26"
    assert not [url for url in browser.requested if "oracle/" in url]  # nothing before it is asked
    browser.run("document.querySelector('.playground-start').click()")
    browser.until("!document.querySelector('.playground-start')")
    browser.until("document.activeElement.matches('.replay')")
    found = browser.run(
        f"window.oracle.call('playground.session', 'run', {json.dumps(settings)})"
        ".then((found) => JSON.stringify(found))"
    )
    assert found == dumped(session.run(settings))  # byte for byte
    box = "document.querySelector('.{}').getBoundingClientRect()".format
    beside = f"{box('playground-form')}.left > {box('replay-panel')}.right"
    assert browser.run(beside)  # so a change is seen where it is made
    press(browser, "ArrowRight", 39)  # at once: nothing has to be clicked first
    assert shown(browser) == "2 / 26"
    press(browser, "ArrowRight", 39, shift=True)  # a whole step
    assert shown(browser) == "5 / 26"
    press(browser, "ArrowLeft", 37, shift=True)
    assert shown(browser) == "1 / 26"
    guess_a_step(browser)
    press(browser, "ArrowLeft", 37, shift=True)
    press(browser, "ArrowRight", 39)
    reserved = "document.querySelector('.playground-form output').textContent"
    assert browser.run(reserved) == "= 0 of 8 blocks"

    change(browser, "GPU blocks", 6)
    settings["gpu_blocks"] = 6
    settled(browser, settings)
    assert shown(browser).startswith("2 /")  # the step that was looked at
    change(browser, "GPU blocks", 41)
    browser.until("document.querySelector('.playground-status').textContent.includes('got 41')")
    assert said(browser) == "gpu_blocks must be a whole number from 1 to 40, got 41"
    change(browser, "GPU blocks", 6)
    settled(browser, settings)
    for percent in (29, 34):
        change(browser, "watermark, %", percent)
        kept = BlockManager(4, 6, watermark=percent / 100).watermark_blocks
        browser.until(f"{reserved} === '= {kept} of 6 blocks'")
    change(browser, "watermark, %", 1)
    settings["watermark_percent"] = 1
    settled(browser, settings)
    browser.run("for (let i = 0; i < 3; i++) document.querySelector('.replay-forward').click()")
    browser.run("document.querySelector('.replay-back').click()")
    browser.until("location.hash.includes('moment=3')")
    shared = browser.run("location.href")
    assert json.loads(parse_qs(urlsplit(shared).fragment)["play"][0]) == settings

    flip = "document.querySelector('.playground-fault input').click()"  # no watermark
    browser.run(flip)
    browser.until("document.querySelector('.playground-status').textContent.includes('did not')")
    assert "(The watermark comes to 0 blocks here.)" in said(browser)
    browser.run(flip)
    settled(browser, {**settings, "breaks": []})
    browser.run("document.querySelector('.playground-example').click()")
    browser.until("!!document.querySelector('.playground-fell p')")
    fell = "document.querySelector('.playground-fell').textContent"
    assert "it is preempted: go on and see. What a user sees: Slower" in browser.run(fell)
    assert browser.run("document.querySelector('.playground-fell a').href").endswith(
        "/correctness/#scheduler"
    )
    browser.run("[...document.querySelectorAll('.playground-example')].at(4).click()")
    browser.until(f"{fell}.includes('I10')")
    assert "I10 falls in step 2. Nobody writes" in browser.run(fell)
    assert "an invariant falls" in browser.run(
        "document.querySelector('.replay-badge').textContent"
    )

    browser.open("about:blank")
    browser.open(shared)
    browser.until("!!document.querySelector('.playground')?.dataset.ran")
    assert shown(browser).startswith("4 /")
    other = {"requests": [{"prompt": "To be or"}]}
    browser.run(f"location.hash = {json.dumps(address(other, 4))}")  # pasted over the old one
    settled(browser, other)
    assert shown(browser).startswith("5 /")
    browser.size(390, 844, phone=True)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    browser.run("void window.oracle.run({ code: 'while True: pass' }).catch(() => {})")
    change(browser, "beams", 2)
    browser.until("!document.querySelector('.playground-stop').hidden")
    browser.run("document.querySelector('.playground-stop').click()")
    browser.until("document.querySelector('.playground-status').textContent === 'Stopped.'")
    assert browser.run("document.querySelector('.playground-stop').hidden")
    assert {urlsplit(url).netloc for url in browser.requested} <= {urlsplit(site).netloc, ""}
    assert browser.problems == []


@needs_chromium
def test_each_gpu_has_its_heads_of_every_block(browser: Page, tmp_path: Path) -> None:
    """One table for all; a block's words, its count and its moves are those of each of them."""
    write_site(tmp_path)
    browser.size(1400, 1200)
    browser.open((tmp_path / "page" / "index.html").as_uri())
    browser.until("!!window.Replay")
    trace = session.run(SCENES["devices"] | {"devices": 3})["trace"]
    browser.run(
        "window.root = document.createElement('div'); window.root.className = 'replay';"
        "document.body.append(window.root); window.shown = new window.Replay(window.root);"
        f"window.shown.load({json.dumps(trace)}); 0"
    )
    texts = (
        "JSON.stringify([0, 1, 2].map((rank) => [...window.root.querySelectorAll("
        "`.replay-block[data-rank='${rank}']`)].map((one) => one.textContent)))"
    )
    moved = 0
    for index, moment in enumerate(trace["moments"]):
        first, *others = json.loads(browser.run(f"window.shown.show({index}), {texts}"))
        assert len(first) == len(moment["gpu"]) + len(moment["cpu"])
        assert others == [first, first]
        if moment["kind"] == "moved":
            moved += len(moment["moves"])
            lines = browser.run("window.root.querySelectorAll('.replay-line.is-move').length")
            assert lines == 3 * len(moment["moves"])
    assert moved > 0
    titles = "[...window.root.querySelectorAll('.replay-memory h4')].map((one) => one.textContent)"
    heads = [title for title in browser.run(titles) if title.startswith("GPU")]
    assert [title.partition(",")[0] for title in heads] == [
        "GPU 0 KV heads 0–3", "GPU 1 KV heads 4–7", "GPU 2 KV heads 8–11"
    ]  # fmt: skip
    seqs = trace["moments"][3]["seqs"]
    key = f"{seqs[0]['name']}/0"
    lit = "window.root.querySelectorAll('.replay-block.is-lit').length"
    assert browser.run(f"window.shown.show(3), window.shown.lines.highlight('{key}'), {lit}") == 3
    assert browser.problems == []


@needs_chromium
@pytest.mark.parametrize(("width", "height"), [(1400, 900), (390, 844)])
def test_the_map_comes_first_and_nothing_covers_it(
    browser: Page, tmp_path: Path, width: int, height: int
) -> None:
    """Blocks can be seen before anything is pressed or scrolled."""
    write_site(tmp_path)
    browser.size(width, height, phone=width < 500)
    browser.open((tmp_path / "page" / "index.html").as_uri())
    browser.until("!!document.querySelector('.replay-block')")
    box = "document.querySelector('{}').getBoundingClientRect()".format
    assert browser.run(f"{box('.replay-queues')}.top") < height / 2
    assert browser.run(f"{box('.replay-block')}.bottom") < height
    assert browser.run("document.documentElement.scrollWidth") <= width
    place = "document.querySelector('.replay-block').compareDocumentPosition({})".format
    follows = browser.run(f"{place("document.querySelector('.playground-status')")} & 4")
    assert follows  # what is played with comes behind it
    browser.run(
        "document.body.innerHTML = `<div class='md-main'><div class='playground'></div>"
        "<button class='md-top'>Back to top</button></div>`"
    )
    top = "getComputedStyle(document.querySelector('.md-top')).display"
    assert browser.run(top) == "none"
    browser.run("document.querySelector('.playground').remove()")
    assert browser.run(top) != "none"


SHOWN = "document.querySelector('.lit').dataset.shows === '{}'"


def current(browser: Page) -> str:
    """The line that the cursor is at, without its number."""
    line = "document.querySelector('.lit-code [aria-current] code').textContent"
    return str(browser.run(line)).strip()


def values(browser: Page) -> str:
    return str(browser.run("document.querySelector('.lit-code .is-now .lit-values')?.textContent"))


@pytest.mark.slow
@needs_chromium
def test_the_code_lights_up_line_by_line(browser: Page, site: str) -> None:
    settings: Any = json.loads(json.dumps(SCENES["preemption"]))
    moments_ = session.run(settings)["trace"]["moments"]
    at = next(i for i, one in enumerate(moments_) if one["kind"] == "moved") - 1
    browser.size(1400, 900)
    browser.open("about:blank")
    browser.open(f"{site}/page/{address(settings, at)}")
    settled(browser, settings)
    assert shown(browser) == f"{at + 1} / {len(moments_)}"
    assert browser.run("document.querySelector('.lit').hidden")  # off until it is asked for
    browser.run("document.querySelector('.lit-toggle input').click()")
    browser.until(SHOWN.format(at))
    beside = "document.querySelector('.lit').getBoundingClientRect().left"
    assert browser.run(f"{beside} > document.querySelector('.replay-pool').offsetLeft")
    found = lines.lit({"settings": settings, "index": at})
    buttons = "[...document.querySelectorAll('.lit-decisions button')]"
    said_ = browser.run(f"{buttons}.map((one) => one.textContent)")
    assert said_ == [one["says"] for one in found["decisions"]]
    click = next(i for i, one in enumerate(said_) if one.startswith("B is preempted"))
    browser.run(f"{buttons}[{click}].click()")
    assert current(browser) == "while need > state.blocks.num_free_gpu_blocks:"
    assert values(browser).startswith("run 1 of 2need = 1state.blocks.num_free_gpu_blocks = 0")
    assert browser.run(f"{buttons}[{click}].getAttribute('aria-current')") == "true"
    assert browser.run("document.querySelector('.lit-live').textContent").startswith("Line ")
    press(browser, "j", 74)
    assert current(browser) == "if state.preempt(output) is group:"
    press(browser, "j", 74)
    assert current(browser) == "group = self.running.pop()"
    path = "document.querySelector('.lit-path').textContent"
    assert browser.run(path) == (
        "Scheduler.schedule › schedule_unified › _advance_running › SchedulerState.preempt"
    )
    press(browser, "k", 75)
    press(browser, "k", 75)
    browser.run("document.querySelector('.lit-code').focus()")
    press(browser, "ArrowDown", 40)
    assert current(browser) == "if state.preempt(output) is group:"
    assert shown(browser) == f"{at + 1} / {len(moments_)}"  # the moment stays
    runs_of_line = "document.querySelector('.lit-code .is-now').dataset.runs"
    assert browser.run(runs_of_line) == "1"
    press(browser, "d", 68)
    assert current(browser) == "if mode == 'swap' and self.blocks.can_swap_out(seq_ids):".replace(
        "'", '"'
    )

    number = int(browser.run("document.querySelector('.lit-count').textContent").split()[0])
    browser.until(f"location.hash.endsWith('line={number - 1}')")
    shared, line = browser.run("location.href"), current(browser)
    browser.open("about:blank")
    browser.open(shared)  # opens at its moment, with its line
    browser.until("document.querySelector('.lit')?.dataset.shows")
    assert shown(browser) == f"{at + 1} / {len(moments_)}" and current(browser) == line
    press(browser, "ArrowRight", 39)
    browser.until(SHOWN.format(at + 1))
    assert "WordMemory.begin_step" in browser.run(
        "document.querySelector('.lit-outline').textContent"
    )
    for index in (0, len(moments_) - 1):
        same = browser.run(
            f"window.oracle.call('playground.lines', 'lit', {{settings: {json.dumps(settings)},"
            f" index: {index}}}).then((found) => JSON.stringify(found))"
        )
        assert same == dumped(lines.lit({"settings": settings, "index": index}))
    browser.size(390, 844, phone=True)
    # A block that flies keeps its place until it has arrived.
    browser.until("!document.querySelector('.is-ghost')")
    browser.until("document.documentElement.scrollWidth <= 390")
    assert browser.problems == []


@pytest.mark.slow
@needs_chromium
def test_a_fault_shows_the_rule_that_it_skips(browser: Page, site: str) -> None:
    example = session.faults()["no copy on write"]["example"]
    moments_ = session.run(example)["trace"]["moments"]
    at = next(i for i, one in enumerate(moments_) if one["kind"] == "fell")
    found = lines.lit({"settings": example, "index": at})
    names = [one["name"] for one in found["functions"]]
    place = next(
        i
        for i, event in enumerate(found["events"])
        if names[found["calls"][event["call"]]["function"]] == "_WritesSharedBlocks._copy_on_write"
    )
    browser.size(1400, 900)
    browser.open("about:blank")
    browser.open(f"{site}/page/{address(example, at)}&line={place}")
    browser.until(f"document.querySelector('.lit')?.dataset.shows === '{at}'")
    assert current(browser) == "return []"
    planted = "document.querySelector('.lit-planted')"
    assert "BlockManager._copy_on_write" in browser.run(f"{planted}.textContent")
    struck = browser.run(f"[...{planted}.querySelectorAll('del')].map((one) => one.textContent)")
    assert "table.blocks[logical] = new" in [one.strip() for one in struck]
    assert browser.problems == []


@pytest.mark.slow
@needs_chromium
def test_scenes_are_opened_and_left(browser: Page, site: str) -> None:
    browser.size(1400, 900)
    browser.open("about:blank")
    browser.open(f"{site}/page/")
    settled(browser, SCENES["crowd"])
    chooser = "document.querySelector('.playground-scenes select')"
    assert browser.run(f"{chooser}.value") == TITLES["crowd"]
    offered = browser.run(f"[...{chooser}.options].map((one) => one.value)")
    assert offered == ["your own", *TITLES.values()]
    change(browser, "Scene", TITLES["adapters"])
    settled(browser, SCENES["adapters"])
    assert browser.run("document.querySelectorAll('[data-slot]').length") == 2
    assert "adapter" in browser.run("document.querySelector('.playground-request').textContent")
    change(browser, "GPU blocks", 15)
    settled(browser, {**SCENES["adapters"], "gpu_blocks": 15})
    assert browser.run(f"{chooser}.value") == "your own"
    change(browser, "Scene", TITLES["devices"])
    settled(browser, SCENES["devices"])
    assert browser.run("!!document.querySelector('[data-rank=\"1\"]')")
    browser.run("[...document.querySelectorAll('.playground-example')].at(-1).click()")
    browser.until("document.querySelector('.playground-fell').textContent.includes('falls in')")
    button = "[...document.querySelectorAll('.playground-buttons button')]"
    browser.run(f"{button}.find((one) => one.textContent === 'Random requests').click()")
    browser.until("document.querySelectorAll('.playground-request').length === 3")
    # The example has five blocks of one token: too few for any of these.
    browser.until("document.querySelector('.playground').dataset.ran.includes('gpu_blocks\":9')")
    assert not browser.run("document.querySelector('.replay').hidden")
    assert browser.problems == []


def test_random_requests_find_room_in_the_usual_memory() -> None:
    for seed in range(60):
        found = session.run({"requests": session.draw({"seed": seed, "count": 3}), "seed": seed})
        assert found["refused"] == {} and found["trace"]["moments"], seed


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
    def nothing(package: pyodide_core.Package) -> Path:
        raise pyodide_core.NoCore("there is no npm here")

    for name in ("lost", "without"):
        write_site(tmp_path / name)
    monkeypatch.setattr(oracle_in_site, "fetched", nothing)
    oracle_in_site.on_post_build({"site_dir": str(tmp_path / "without")})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser.open(f"http://127.0.0.1:{server.server_port}/without/page/")
    browser.until("document.querySelector('.playground-status')?.textContent")
    assert said(browser).startswith("This site was built without Python")
    assert said(browser).endswith("The recorded scenes work without it.")
    assert not browser.run("!!document.querySelector('.playground-start')")
    browser.open(f"http://127.0.0.1:{server.server_port}/lost/page/")  # it should be there
    browser.until("!!document.querySelector('.playground-start')")
    browser.run("document.querySelector('.playground-start').click()")
    browser.until("document.querySelector('.playground-status').textContent.includes('cannot')")
    assert said(browser).endswith("The recorded scenes work without it.")
    browser.open((tmp_path / "lost" / "page" / "index.html").as_uri())
    browser.until("!!document.querySelector('.playground-status')?.textContent")
    assert "opened as a file cannot start Python" in said(browser)
    server.shutdown()
