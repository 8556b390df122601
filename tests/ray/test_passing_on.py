"""Requests as they are passed on, and what Serve asks of a replica: without Ray's processes."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from jax_engine.errors import EngineDeadError
from jax_engine.ray import batch, llm_server
from jax_engine.ray.autoscaling import KV_CACHE_USAGE
from jax_engine.ray.llm_server import HttpCall, LLMServer

pytest.importorskip("ray.serve")
from ray.exceptions import ActorDiedError

from jax_engine.ray.openai_ingress import TRIES, OpenAiIngress

CALL = HttpCall("POST", "/v1/completions", b"a=1", [(b"content-type", b"text/plain")], b"body")
START: dict[str, Any] = {"type": "http.response.start", "status": 200, "headers": []}


def part(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


def server(app: Any = None, llm: Any = None) -> LLMServer:
    """A replica without an engine."""
    found = object.__new__(LLMServer)
    found._app, found._llm, found._usage = app, llm, 0.0
    return found


def run[T](work: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(60):
            return await work()

    return asyncio.run(bounded())


@given(st.lists(st.tuples(st.binary(max_size=3), st.booleans()), max_size=8))
def test_an_app_s_messages_come_whole_and_in_order(parts: list[tuple[bytes, bool]]) -> None:
    """Whether they are sent at once, or one after another."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["body"] == b"body"
        assert (scope["method"], scope["path"], scope["query_string"]) == (
            "POST",
            "/v1/completions",
            b"a=1",
        )
        await send(START)
        for body, waits in parts:
            await send(part(body))
            if waits:
                await asyncio.sleep(0)
        await send(part(b"", False))

    async def work() -> list[Any]:
        return [one async for batch in server(app).asgi(CALL) for one in batch]

    assert run(work) == [START, *[part(body) for body, _ in parts], part(b"", False)]


def test_an_app_that_fails_behind_its_answer_ends_it() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        raise RuntimeError("said before")

    async def work() -> list[Any]:
        return [one async for batch in server(app).asgi(CALL) for one in batch]

    assert run(work) == [START]


def test_whoever_stops_reading_ends_the_request() -> None:
    ended = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await receive()
        try:
            await receive()
        finally:
            ended.set()

    async def work() -> None:
        parts = server(app).asgi(CALL)
        assert await anext(parts) == [START]
        await parts.aclose()  # type: ignore[attr-defined]
        assert ended.is_set()

    run(work)


class Handle:
    """A handle of Serve: each call has the next one's messages, or raises its error."""

    def __init__(self, *calls: Any) -> None:
        self.calls, self.asked, self.cancelled = list(calls), list[HttpCall](), 0

    def options(self, **options: Any) -> "Handle":
        assert options == {"method_name": "asgi", "stream": True}
        return self

    def remote(self, call: HttpCall) -> Any:
        self.asked.append(call)
        return Stream(self, self.calls.pop(0))


class Stream:
    def __init__(self, handle: Handle, messages: Any) -> None:
        self._handle, self._messages = handle, messages
        self._parts = self._all()

    async def _all(self) -> AsyncIterator[Any]:
        for one in self._messages:
            if isinstance(one, BaseException):
                raise one
            yield [one]

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        return await anext(self._parts)

    def cancel(self) -> None:
        self._handle.cancelled += 1


DIED = ActorDiedError()
WHOLE = [START, part(b"x", False)]


def ask(handle: Handle, body: bytes = b"body", limit: int = 100, **scope: Any) -> list[Any]:
    """What a client of the ingress gets."""
    sent = list[Any]()

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    async def work() -> None:
        given = {"type": "http", **CALL.scope(), **scope}
        response = await OpenAiIngress(handle, limit)(Request(given, receive))
        await response(given, receive, send)

    run(work)
    return sent


def test_a_request_is_passed_on_as_it_is() -> None:
    handle = Handle(WHOLE)
    assert ask(handle) == WHOLE
    assert handle.asked == [CALL] and handle.cancelled == 1


@pytest.mark.parametrize(
    ("path", "prefix", "seen"),
    [("/llm/health", "/llm", "/health"), ("/health", "", "/health"), ("/llm", "/llm/", "/")],
)
def test_the_route_s_prefix_is_left_out(path: str, prefix: str, seen: str) -> None:
    handle = Handle(WHOLE)
    ask(handle, path=path, root_path=prefix)
    assert handle.asked[0].path == seen


def test_of_a_body_that_is_too_long_enough_is_passed_on_for_it_to_be_refused() -> None:
    handle = Handle(WHOLE)
    ask(handle, b"x" * 101)
    assert len(handle.asked[0].body) == 101


def test_a_replica_that_ends_before_its_first_word_is_replaced() -> None:
    handle = Handle([DIED], [DIED], WHOLE)
    assert ask(handle) == WHOLE and len(handle.asked) == 3


def test_if_all_replicas_end_the_client_is_told() -> None:
    handle = Handle(*[[DIED]] * TRIES)
    start, body = ask(handle)
    assert start["status"] == 503 and len(handle.asked) == TRIES
    assert "ask again" in json.loads(body["body"])["error"]["message"]


def test_a_replica_that_ends_later_breaks_its_stream_off() -> None:
    handle = Handle([START, part(b"x"), DIED])
    with pytest.raises(ActorDiedError):
        ask(handle)
    assert len(handle.asked) == handle.cancelled == 1


def test_another_error_is_not_tried_again() -> None:
    handle = Handle([ValueError("bug")])
    with pytest.raises(ValueError, match="bug"):
        ask(handle)
    assert len(handle.asked) == handle.cancelled == 1


class Engine:
    """An `AsyncLLM` with some blocks in use."""

    def __init__(self) -> None:
        self.is_running, self.num_unfinished_requests = True, 0
        self.dead_error = EngineDeadError("it ended")
        self.used = 30

    async def check_health(self) -> None:
        if not self.is_running:
            raise self.dead_error

    def shutdown(self) -> None:
        """Serve calls `__del__`, and so does Python."""

    async def get_stats_of_engines(self) -> list[dict[str, int]]:
        await self.check_health()
        return [{"num_used_blocks": self.used, "num_blocks": 60}] * 2


def test_health_is_the_engine_s_and_its_memory_is_told() -> None:
    llm = Engine()

    async def work() -> None:
        replica = server(llm=llm)
        await replica.check_health()
        assert await replica.record_autoscaling_stats() == {KV_CACHE_USAGE: 0.5}
        llm.is_running = False
        with pytest.raises(EngineDeadError, match="it ended"):
            await replica.check_health()
        assert await replica.record_autoscaling_stats() == {KV_CACHE_USAGE: 0.5}

    run(work)


@pytest.mark.parametrize("unfinished", [0, 1])
def test_a_replica_ends_behind_its_engine(unfinished: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though a request may never end."""
    for name in ("WATCH_S", "LAST_WORDS_S"):
        monkeypatch.setattr(llm_server, name, 0.01)
    llm = Engine()

    def ends(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(llm_server, "os", SimpleNamespace(_exit=ends))

    async def work() -> None:
        watch = asyncio.ensure_future(server(llm=llm)._until_dead())
        await asyncio.sleep(0.05)
        assert not watch.done()
        llm.is_running, llm.num_unfinished_requests = False, unfinished
        await watch

    with pytest.raises(SystemExit, match="1"):
        run(work)


class Ended(Exception):
    """In place of the end of a process."""


@pytest.mark.parametrize(("status", "errored"), [(500, True), (500, False), (200, True)])
def test_an_actor_ends_with_its_engine_and_no_answer_is_lost(
    status: int, errored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch is asked again, by another one; an error that an engine survives is an answer."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START | {"status": status})
        await send(part(b'{"choices": [{"text": "x"}]}', False))

    def ends(status: int) -> None:
        raise Ended

    monkeypatch.setattr(batch, "os", SimpleNamespace(_exit=ends))
    actor = object.__new__(batch.EngineActor)
    actor._runner = asyncio.Runner()
    actor._app, actor._llm = app, SimpleNamespace(errored=errored)  # type: ignore[assignment]
    columns = {"number": [3, 4], "of_batch": [False, True], "custom_id": ["", "a"]}
    rows = {name: np.array(values) for name, values in columns.items()}
    bodies = np.array([b"{}", b"{}"], dtype=object)
    rows |= {"url": np.array(["/v1/completions"] * 2), "body": bodies}
    if status == 500 and errored:
        with pytest.raises(Ended):
            actor(rows)
    else:
        found = actor(rows)
        assert (found["number"], found["of_batch"]) == ([3, 4], [False, True])
        simple, of_batch = map(json.loads, found["answer"])
        assert simple == {"line": 3, "text": "x"}
        assert (of_batch["custom_id"], of_batch["response"]["status_code"]) == ("a", status)
    actor._runner.close()
