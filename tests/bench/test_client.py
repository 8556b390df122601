"""The client of `bench serve`, against a server that sends each piece at a known time."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jax_engine.commands.bench.benchmark_request import BenchmarkRequest, Outcome, Target
from jax_engine.commands.bench.client import Client, replay

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


class Clock:
    """A clock that a test sets; it knows when it has been read."""

    def __init__(self) -> None:
        self.now = 0.0
        self.was_read = asyncio.Event()

    def __call__(self) -> float:
        self.was_read.set()
        return self.now


type Handler = Callable[[dict[str, Any], asyncio.StreamWriter], Awaitable[None]]


async def ask_all(handler: Handler, asks: list[BenchmarkRequest], **options: Any) -> list[Outcome]:
    """Outcomes of a client whose requests `handler` answers."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].split("\r\n")[0])
        await handler(json.loads(await reader.readexactly(length)), writer)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    chat = options.pop("chat", False)
    target = Target(f"http://127.0.0.1:{port}/x", "m", chat, {"ignore_eos": True})
    async with server, Client(target, **options) as client:
        begun = asyncio.get_running_loop().time()
        outcomes, seconds = await replay(client, asks, [0.0] * len(asks))
        assert 0 < seconds <= asyncio.get_running_loop().time() - begun
        return outcomes


def test_times_are_those_of_the_server() -> None:
    async def run() -> Outcome:
        clock = Clock()

        async def answer(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
            assert body["max_tokens"] == 3 and body["prompt"] == [5, 6] and body["ignore_eos"]
            writer.write(HEAD)
            for now in (0.25, 0.375, 1.0):
                clock.now = now
                clock.was_read.clear()
                writer.write(b'data: {"choices":[{"text":"x"}]}\n\n')
                await clock.was_read.wait()
            writer.write(b'data: {"choices":[],"usage":{"completion_tokens":3}}\n\n')
            writer.write(b"data: [DONE]\n\n")

        (outcome,) = await ask_all(answer, [BenchmarkRequest([5, 6], 2, 3)], clock=clock)
        return outcome

    outcome = asyncio.run(run())
    assert outcome.error is None and (outcome.num_prompt, outcome.num_output) == (2, 3)
    assert (outcome.time_to_first, outcome.latency) == (0.25, 1.0)
    assert outcome.between == [0.125, 0.625] and outcome.per_token == 0.375


def test_no_more_than_max_concurrency_are_open() -> None:
    opened, most = 0, 0

    async def answer(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        nonlocal opened, most
        assert body["messages"] == [{"role": "user", "content": "hi"}]
        opened += 1
        most = max(most, opened)
        await asyncio.sleep(0)
        opened -= 1
        writer.write(HEAD + b'data: {"choices":[{}]}\n\ndata: [DONE]\n\n')

    asks = [BenchmarkRequest("hi", 1, 1)] * 9
    outcomes = asyncio.run(ask_all(answer, asks, max_concurrency=2, chat=True))
    assert [one.error for one in outcomes] == [None] * 9 and most <= 2
    assert sum(one.waited > 0 for one in outcomes) >= 7


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nfull", "HTTP 503: full"),
        (HEAD + b'data: {"choices":[{}]}\n\n', "before [DONE]"),
        (HEAD + b"data: {\n\n", "DecodeError"),
        (b"", "ServerDisconnectedError"),
    ],
)
def test_what_goes_wrong_is_said(sent: bytes, error: str) -> None:
    async def answer(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(sent)

    (outcome,) = asyncio.run(ask_all(answer, [BenchmarkRequest("hi", 1, 1)]))
    assert outcome.error is not None and error in outcome.error
