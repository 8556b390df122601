"""The page at `GET /` in a real browser, as it is used at a desk and on a phone."""

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
import uvicorn

from jax_engine.serving.api.app import make_app
from jax_engine.serving.api.service import ServerSettings, Service
from jax_engine.serving.api.web_page import FILES
from jax_engine.tokenization.tokenizer import load_tokenizer
from tests.support.chromium import Page, chromium
from tests.support.http_server import HttpServer
from tests.support.patience import until
from tests.support.scripted_llm import ScriptedLLM
from tests.support.tiny_llama import byte_llama

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")
EVIL = "<img src=x onerror=\"document.title='hacked'\"><b>bold</b>"
CELLS = "[...document.querySelectorAll('#map .cell.is-used')]"
# So long a series of moments is kept by the page itself: answers of a tiny model are short
WATCH = """
window.seen = {hues: 0, forked: 0, common: 0, chips: 0, known: 0, used: 0};
new MutationObserver(() => {
  const all = (what) => [...document.querySelectorAll(what)];
  const hues = new Set(all('#map .cell.is-used').map((one) => one.style.getPropertyValue('--hue')));
  const most = (name, value) => { window.seen[name] = Math.max(window.seen[name], value); };
  most('hues', hues.size);
  most('used', all('#map .cell.is-used').length);
  most('forked', all('#map .is-forked').length);
  most('common', all('#map .is-common').length);
  most('chips', all('#running .chip').length);
  most('known', all('.answer.is-known').length);
}).observe(document.body, {subtree: true, childList: true, attributes: true});
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """A server whose model gives answers long enough to watch."""
    folder = tmp_path_factory.mktemp("models") / "long"
    path = byte_llama(folder, max_position_embeddings=1024)
    found = HttpServer.of(
        path, "--served-model-name", "tiny", "--max-model-len=1024",
        "--num-gpu-blocks-override=2200", "--enable-prefix-caching",
    )  # fmt: skip
    yield found
    assert found.stop() == 0


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(CHROMIUM, tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(params=[(1280, False), (390, True)], ids=["desktop", "phone"])
def sized(page: Page, request: pytest.FixtureRequest) -> Page:
    width, phone = request.param
    page.open("about:blank")  # what the page of another test still asks for is not counted
    page.until("location.href === 'about:blank'")
    page.size(width, 844, phone=phone)
    page.scheme("dark" if phone else "light")
    page.requested.clear()
    page.problems.clear()
    return page


def scripted_state(**changes: Any) -> dict[str, Any]:
    none = {
        "num_blocks": 8, "num_used": 0, "num_shared": 0, "num_cached": 0, "per_cell": 1, "span": 0,
        "cells": [],
    }  # fmt: skip
    memory = {"block_size": 4, "requests": [], "num_waiting": 0, "device": none, "host": none}
    counted = {"num_recomputed": 0, "num_swapped_out": 0, "prompt_tokens": 0, "generated_tokens": 0}
    return {"time": 1.0, "map": memory | changes, **counted}


def view(**changes: Any) -> dict[str, Any]:
    """A request in the engine's state."""
    request = {
        "request_id": None, "name": "7", "queue": "running", "num_samples": 2, "prompt_len": 6,
        "num_computed": 6, "num_cached": 4, "output_len": 3, "num_blocks": 3,
    }  # fmt: skip
    return request | changes


@contextmanager
def served(llm: ScriptedLLM, **settings: Any) -> Iterator[str]:
    """An address of the endpoints over an engine that says what it is told to."""
    app = make_app(Service(llm, ServerSettings(names=("tiny",), **settings)))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, lifespan="off", log_config=None, timeout_graceful_shutdown=1)
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, args=([listening],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            running.should_exit = True
            thread.join()


@pytest.fixture
def llm(checkpoint: Path) -> Callable[..., ScriptedLLM]:
    def of(**script: Any) -> ScriptedLLM:
        found = ScriptedLLM(load_tokenizer(checkpoint), **script)
        found.state = found.state or scripted_state()
        return found

    return of


def send(
    page: Page, text: str, *, button: str = "send", samples: int = 1, tokens: int = 60
) -> None:
    fields = {"samples": samples, "max-tokens": tokens, "text": text}
    for name, value in fields.items():
        page.run(f"document.getElementById({name!r}).value = {value!r}")
    page.run(f"document.getElementById({button!r}).click()")


def is_done(page: Page) -> None:
    page.until("document.querySelector('.answer') && document.getElementById('stop').hidden")


def is_live(page: Page, url: str) -> None:
    page.open(url)
    page.until("document.getElementById('status')?.dataset.mood === 'live'")


def check_calm(page: Page, url: str) -> None:
    """Nothing sticks out, nothing was asked of others, nothing was refused or failed."""
    wide = page.run("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide[0] <= wide[1]
    out = page.run(
        "[...document.querySelectorAll('body *')].filter((one) => "
        "one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.id || one.className)"
    )
    assert out == []
    assert {urlparse(one).netloc for one in page.requested} == {urlparse(url).netloc}
    assert page.problems == []


@pytest.mark.slow
def test_a_chat_and_the_map_of_its_blocks(sized: Page, server: HttpServer) -> None:
    is_live(sized, f"{server.url}/")
    sized.run(WATCH)
    for _ in range(8):  # the engine is fast: its answer may end between two looks
        send(sized, "Once", samples=8, tokens=400)
        is_done(sized)
        seen = sized.run("window.seen")
        if seen["forked"]:
            break
        sized.run("document.getElementById('new').click()")
    assert seen["forked"] >= 1, seen  # samples share the prompt's blocks
    assert seen["known"] == seen["chips"] == seen["hues"] == 1 and seen["common"] == 0
    texts = sized.run("[...document.querySelectorAll('.sample')].map((one) => one.textContent)")
    assert len(texts) == 8 and any(texts)
    sized.until(f"{CELLS}.length === 0")
    assert sized.run("document.querySelectorAll('#map .is-cached').length") > 0
    check_calm(sized, server.url)


def test_eight_at_once_have_eight_colours(
    sized: Page, llm: Callable[..., ScriptedLLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = llm(hangs=True)

    async def state(number: int) -> dict[str, Any]:
        requests = [view(name=str(i), request_id=name) for i, name in enumerate(engine.request_ids)]
        cells = [[i, 1, 0, 1, 4, 0, 1, [i]] for i in range(len(requests))]
        cells.append([20, 1, 1, 8, 4, 0, 8, [0, 1, 2, 3]])
        memory = scripted_state()["map"]["device"]
        device = memory | {"num_blocks": 64, "span": 21, "cells": cells if requests else []}
        return scripted_state(requests=requests, device=device)

    monkeypatch.setattr(engine, "get_state", state)
    with served(engine) as url:
        is_live(sized, url)
        sized.run(WATCH)
        send(sized, "The capital of France", button="many")
        sized.until("document.querySelectorAll('.answer.is-known').length === 8")
        answers = sized.run(
            "[...document.querySelectorAll('.answer')].map((one) => "
            "[one.querySelector('.who').textContent, one.style.getPropertyValue('--hue')])"
        )
        chips = sized.run(
            "[...document.querySelectorAll('#running .chip')].map((one) => "
            "[one.querySelector('b').textContent, one.style.getPropertyValue('--hue')])"
        )
        assert sorted(answers) == sorted(chips) and len(dict(answers)) == 8
        hues = sized.run(f"{CELLS}.slice(0, 8).map((one) => one.style.getPropertyValue('--hue'))")
        assert hues == [hue for _, hue in chips] and len(set(hues)) == 8
        assert sized.run("document.querySelectorAll('#map .is-common').length") == 1
        sized.run("document.getElementById('stop').click()")
        is_done(sized)
        check_calm(sized, url)


def test_a_cell_says_whose_it_is(sized: Page, llm: Callable[..., ScriptedLLM]) -> None:
    requests = [view(name="7"), view(name="8"), view(name="9", queue="swapped")]
    cells = [[0, 1, 1, 2, 4, 0, 1, [0]], [2, 1, 1, 2, 4, 0, 2, [0, 1]], [5, 0, 0, 0, 0, 1, 0, []]]
    memory = scripted_state()["map"]["device"] | {"num_used": 2, "span": 6, "cells": cells}
    host = memory | {"num_used": 1, "cells": [[3, 1, 0, 1, 2, 0, 1, [2]]]}
    state = scripted_state(requests=requests, device=memory, host=host)
    with served(llm(state=state)) as url:
        is_live(sized, url)
        said = []
        for cell in (0, 2, 5, 6):
            sized.run(f"document.querySelector('#map [data-cell=\"{cell}\"]').click()")
            said.append(sized.run("document.getElementById('told').textContent"))
        assert "shared by 2 samples of #7; 4 of 4 tokens" in said[0]
        assert "shared by 2 requests, #7, #8" in said[1]
        assert "still holds a prefix" in said[2] and said[3] == "Block 6: free."
        assert sized.run("document.querySelectorAll('#map .cell').length") == 8
        chips = sized.run("document.getElementById('swapped').textContent")
        assert "#9" in chips
        sized.run("document.querySelector('#host-map [data-cell=\"3\"]').click()")
        assert "held by #9, 2 of 4" in sized.run("document.getElementById('told').textContent")
        check_calm(sized, url)


def test_what_a_model_says_is_text(sized: Page, llm: Callable[..., ScriptedLLM]) -> None:
    with served(llm(text=EVIL)) as url:
        is_live(sized, url)
        send(sized, EVIL)
        is_done(sized)
        time.sleep(0.1)
        assert sized.run("document.querySelector('.sample').textContent") == EVIL
        assert sized.run("document.querySelector('.asked').textContent") == EVIL
        assert sized.run("document.querySelectorAll('#log img, #log b.bold').length") == 0
        assert sized.run("document.title") != "hacked"
        check_calm(sized, url)


def test_a_key_is_asked_for_until_it_is_right(page: Page, llm: Callable[..., ScriptedLLM]) -> None:
    with served(llm(), api_keys=("secret",)) as url:
        page.open(url)
        for key in ("wrong", "secret"):
            page.until("document.getElementById('key-dialog')?.open")
            page.run(f"document.getElementById('key').value = {key!r}")
            page.run("document.querySelector('#key-form button').click()")
        page.until("document.getElementById('status').dataset.mood === 'live'")
        assert page.run("sessionStorage.getItem('jax-engine-key')") == "secret"
        assert page.run("localStorage.length") == 0
        send(page, "hi")
        is_done(page)
        assert page.run("document.querySelector('.sample').textContent") == "Hello"


def test_an_empty_box_says_what_is_missing(sized: Page, llm: Callable[..., ScriptedLLM]) -> None:
    engine = llm()
    missing = "document.getElementById('missing').textContent"
    with served(engine) as url:
        is_live(sized, url)
        for button, words in (
            ("many", "Type a message first, and 8 requests with it are sent."),
            ("send", "Type a message first."),
        ):
            send(sized, " ", button=button)
            assert sized.run(missing) == words
            assert sized.run("document.activeElement.id") == "text"
            check_calm(sized, url)
        assert not engine.asked and sized.run("document.querySelector('.answer')") is None
        sized.run("document.getElementById('text').dispatchEvent(new InputEvent('input'))")
        assert sized.run(missing) == ""
        send(sized, "", button="many")
        send(sized, "hi")
        is_done(sized)
        assert sized.run(missing) == "" and len(engine.asked) == 1


def test_stop_ends_the_request(page: Page, llm: Callable[..., ScriptedLLM]) -> None:
    engine = llm(hangs=True)
    with served(engine) as url:
        is_live(page, url)
        send(page, "hi")
        page.until("document.querySelector('.sample')?.textContent === 'Hell'")
        page.run("document.getElementById('stop').click()")
        is_done(page)
        until(lambda: not engine.open, "the end of the request")


def test_a_dead_or_busy_engine_is_said_and_the_page_comes_back(
    page: Page, llm: Callable[..., ScriptedLLM]
) -> None:
    engine = llm()
    says = "document.getElementById('status').textContent"
    with served(engine) as url:
        is_live(page, url)
        engine.errored = True
        page.until(f"{says}.includes('engine has ended')")
        engine.errored = False
        page.until(f"{says} === 'live'")
        engine.busy, engine.step_seconds = True, 9.0
        page.until(f"{says}.includes('a step has run for 9 s')")
    page.until(f"{says}.includes('does not answer')")


def test_the_files_hold_no_address_and_no_inline_script() -> None:
    from jax_engine.serving.api.web_page import FOLDER

    assert {path.name for path in FOLDER.iterdir()} == {name for name, _ in FILES.values()}
    for path in FOLDER.iterdir():
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text and "https:" not in text and "innerHTML" not in text
        assert " style=" not in text and " onclick=" not in text
