"""What ends a server, in this process: signals while a request is open, and the engine's end."""

import asyncio
import gc
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from jax_engine.serving.api import server as server_module
from tests.support.patience import HANG_S, until


class Engine:
    """A double with as much of an `AsyncLLM` as a server needs to end."""

    is_running = True
    dead_error = "the engine's process ended"
    shut: float | None = None

    unfinished = 0

    def __init__(self) -> None:
        self.looked = threading.Event()

    @property
    def num_unfinished_requests(self) -> int:
        self.looked.set()
        return self.unfinished

    def shutdown(self, timeout: float) -> None:
        self.shut = timeout


class App:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        while not self.answers.is_set():
            await asyncio.sleep(0.01)
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})


type Ends = Callable[[App, Engine, str], Any]


@pytest.fixture
def drains(caplog: pytest.LogCaptureFixture) -> Callable[[], None]:
    """Waits until the server has taken a signal: two that come at once would be one."""
    caplog.set_level(logging.INFO, "jax_engine")

    def wait() -> None:
        until(lambda: "draining" in caplog.text, "the first signal's answer")

    return wait


@pytest.fixture
def signals() -> Iterator[list[int]]:
    """Signals that reach this process while no server takes them."""
    found: list[int] = []
    both = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(one, lambda number, _: found.append(number)) for one in both]
    yield found
    for one, handler in zip(both, before, strict=True):
        signal.signal(one, handler)


def served(ends: Ends, shutdown_timeout: float = HANG_S) -> tuple[int, Any]:
    """Runs a server until another thread's `ends` has ended it: its status, and what that gave."""
    app, engine = App(), Engine()
    listening = server_module.bound_socket("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    with listening, ThreadPoolExecutor(1) as other:
        found: Future[Any] = other.submit(ends, app, engine, url)
        try:
            asgi: Any = app
            llm: Any = engine
            status = server_module.run(asgi, llm, listening, shutdown_timeout)
        finally:
            gc.unfreeze()
            app.answers.set()
        return status, found.result(HANG_S)


def asks(app: App, url: str, asker: ThreadPoolExecutor) -> "Future[httpx2.Response]":
    """A request that the app has, and does not answer."""
    before = app.asked
    answer = asker.submit(httpx2.get, url, timeout=HANG_S)
    until(lambda: app.asked > before, "the app has the request")
    return answer


def failed(answer: "Future[httpx2.Response]") -> bool:
    """Whether a request was cut off, or has an error for an answer."""
    problem = answer.exception(HANG_S)
    return isinstance(problem, httpx2.HTTPError) or answer.result().status_code == 500


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_signal_lets_an_open_request_finish(
    signals: list[int], drains: Callable[[], None], number: int
) -> None:
    def ends(app: App, engine: Engine, url: str) -> tuple[int, bool]:
        with ThreadPoolExecutor(1) as asker:
            answer = asks(app, url, asker)
            os.kill(os.getpid(), number)
            drains()
            waits = not answer.done()
            app.answers.set()
            return answer.result(HANG_S).status_code, waits

    assert served(ends) == (0, (200, True))
    assert signals == []
    os.kill(os.getpid(), number)  # behind the server, signals are what they were
    until(lambda: signals == [number], "the signal")


def test_a_second_signal_ends_it_though_a_request_is_open(
    signals: list[int], drains: Callable[[], None]
) -> None:
    def ends(app: App, engine: Engine, url: str) -> bool:
        with ThreadPoolExecutor(1) as asker:
            answer = asks(app, url, asker)
            os.kill(os.getpid(), signal.SIGTERM)
            drains()
            os.kill(os.getpid(), signal.SIGTERM)
            return failed(answer)

    assert served(ends) == (0, True)
    assert signals == []


def test_open_requests_have_the_time_that_was_given_them(signals: list[int]) -> None:
    def ends(app: App, engine: Engine, url: str) -> bool:
        with ThreadPoolExecutor(1) as asker:
            answer = asks(app, url, asker)
            os.kill(os.getpid(), signal.SIGTERM)
            return failed(answer)

    assert served(ends, 1.0) == (0, True)


def test_it_ends_with_its_engine(monkeypatch: pytest.MonkeyPatch, signals: list[int]) -> None:
    """After some last words, and with an error."""
    monkeypatch.setattr(server_module, "LAST_WORDS_S", 0.1)

    def ends(app: App, engine: Engine, url: str) -> float | None:
        with ThreadPoolExecutor(1) as asker:
            answer = asks(app, url, asker)
            engine.is_running = False
            assert failed(answer)  # which nobody would answer any more
            return engine.shut

    assert served(ends) == (1, 0.0)
    assert signals == []


@pytest.mark.parametrize("finish", [True, False])
@pytest.mark.slow
def test_other_engines_finish_what_they_run(monkeypatch: pytest.MonkeyPatch, finish: bool) -> None:
    """What they do not finish in the time for it ends with the server."""
    monkeypatch.setattr(server_module, "LAST_WORDS_S", 0.1)

    def ends(app: App, engine: Engine, url: str) -> None:
        with ThreadPoolExecutor(1) as asker:
            answer = asks(app, url, asker)
            engine.unfinished = 1
            engine.is_running = False
            assert engine.looked.wait(HANG_S)
            if finish:
                assert engine.shut is None
                app.answers.set()
                assert answer.result(HANG_S).text == "ok"
                engine.unfinished = 0
                until(lambda: engine.shut is not None, "the end")
            else:
                assert failed(answer) and engine.shut == 0.0

    assert served(ends, HANG_S if finish else 1.0)[0] == 1
