"""Streams that say that they are alive while nothing comes, and end as others do."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from jax_engine.serving.api.streaming import KEEP_ALIVE, kept_alive
from tests.support.patience import HANG_S
from tests.support.scripted_app import Make, events, leave

COMMENT = ": keep-alive\n\n"
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "x"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
}


def test_a_comment_comes_whenever_nothing_does() -> None:
    """Before the first event, between two, and not once they have ended."""
    closed = []

    async def slow(go: asyncio.Event) -> AsyncGenerator[object]:
        try:
            for number in range(3):
                await go.wait()
                go.clear()
                yield number
        finally:
            closed.append(True)

    async def seen() -> list[object]:
        go, found = asyncio.Event(), []
        async for event in kept_alive(slow(go), 0.001):
            found.append(event)
            if event is KEEP_ALIVE:
                go.set()
        return found

    found = asyncio.run(asyncio.wait_for(seen(), HANG_S))
    assert [one for one in found if one is not KEEP_ALIVE] == [0, 1, 2]
    assert found[0] is KEEP_ALIVE and found[-1] == 2 and closed == [True]
    assert all(found[found.index(one) - 1] is KEEP_ALIVE for one in range(3))


def test_who_leaves_ends_what_was_waited_for() -> None:
    closed = []

    async def never() -> AsyncGenerator[object]:
        try:
            await asyncio.Event().wait()
            yield
        finally:
            closed.append(True)

    async def leaves() -> None:
        stream = kept_alive(never(), 0.001)
        assert await anext(stream) is KEEP_ALIVE
        await stream.aclose()

    asyncio.run(asyncio.wait_for(leaves(), HANG_S))
    assert closed == [True]


@pytest.mark.parametrize("path", BODIES)
def test_answers_are_the_same_beside_the_comments(make: Make, path: str) -> None:
    async def a_while() -> None:
        await asyncio.sleep(0.05)

    body = BODIES[path] | {"stream": True}
    plain, _ = make()
    said = events(plain.post(path, json=body).text)
    alive, _ = make({"sse_keep_alive_s": 0.005}, waits=a_while)
    text = alive.post(path, json=body).text
    assert text.startswith(COMMENT)
    for one in (*said, *(again := events(text.replace(COMMENT, "")))):
        del one["id"], one["created"]
    assert again == said
    quiet, _ = make({"sse_keep_alive_s": 0.005}, waits=a_while)
    assert COMMENT not in quiet.post(path, json=BODIES[path]).text


@pytest.mark.parametrize("path", BODIES)
def test_an_error_has_its_status_until_something_was_said(make: Make, path: str) -> None:
    async def fails() -> None:
        raise RuntimeError("of the engine")

    async def fails_late() -> None:
        await asyncio.sleep(0.05)
        raise RuntimeError("of the engine")

    body = BODIES[path] | {"stream": True}
    early, _ = make({"sse_keep_alive_s": HANG_S}, waits=fails)
    assert early.post(path, json=body).status_code == 500
    late, _ = make({"sse_keep_alive_s": 0.005}, waits=fails_late)
    answer = late.post(path, json=body)
    assert answer.status_code == 200 and answer.text.startswith(COMMENT)
    (error,) = events(answer.text.replace(COMMENT, ""))
    assert error == early.post(path, json=body).json()


@pytest.mark.parametrize("path", BODIES)
def test_i22_who_leaves_a_stream_of_comments_ends_its_request(make: Make, path: str) -> None:
    client, llm = make({"sse_keep_alive_s": 0.005}, hangs=True)
    asyncio.run(leave(client.app, path, BODIES[path] | {"stream": True}, llm))
    assert llm.open == 0
