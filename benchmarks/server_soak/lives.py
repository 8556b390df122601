"""A server's lives: loads, looks at memory, and the end that its engine's death brings."""

import asyncio
import json
import os
import random
import re
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.compare import quiet
from benchmarks.compare.servers.server import Kind, Server
from benchmarks.server_soak.asks import MAX_BODY, Ask, http, make
from benchmarks.server_soak.client import exchange
from benchmarks.server_soak.judge import Exchange

IN_FLIGHT, BURST = 16, 24
IDLE_S, END_S = 20.0, 15.0
IDLE = (
    "jax_engine:num_used_blocks",
    "jax_engine:num_requests_open",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
)


@dataclass
class Soak:
    """What a soak has seen.

    Attributes:
        broken: what must not be, a line each.
        looks: resident MiB of both processes in the long life, after so many requests.
    """

    settings: dict[str, Any]
    max_tokens: int
    log: Path
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    exchanges: list[Exchange] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    looks: dict[int, tuple[float, float]] = field(default_factory=dict)
    kills: int = 0

    def start(self) -> Server:
        """A new server."""
        return Server(KIND, "", self.settings, self.log)

    def asks(self, count: int) -> list[Ask]:
        """The next requests."""
        return [make(self.rng, self.max_tokens) for _ in range(count)]

    def short_life(self, count: int) -> None:
        """Requests, then nothing is left; more requests, amid which the engine is killed."""
        server = self.start()
        try:
            asyncio.run(self._load(server.url, self.asks(count)))
            self._check_idle(server)
            asyncio.run(self._killed(server))
            begun = time.monotonic()
            status = server.process.wait(END_S + 5)
            took = time.monotonic() - begun
            if status != 1 or took > END_S:
                self.broken.append(f"the server ended with {status}, {took:.1f} s after its engine")
            self.kills += 1
        finally:
            server.close()

    def long_life(self, count: int, looks: int, *, words: int) -> None:
        """Requests, with `looks` at memory between them; at last nothing is left.

        Args:
            words: that the tokenizer meets before: it keeps 10,000.
        """
        server = self.start()
        try:
            asyncio.run(_tokenize(server.url, words))
            for number in range(1, looks + 1):
                part = count * number // looks - count * (number - 1) // looks
                asyncio.run(self._load(server.url, self.asks(part)))
                self._check_idle(server)
                sizes = [_resident_mib(pid) for pid in (server.process.pid, _engine(server))]
                self.looks[count * number // looks] = sizes[0], sizes[1]
                print(f"  {count * number // looks} requests: {sizes} MiB", flush=True)
            server.process.terminate()
            status = server.process.wait(END_S)
            if status != 0:
                self.broken.append(f"the server ended with {status} after SIGTERM")
        finally:
            server.close()

    async def _load(self, url: str, asks: Iterable[Ask]) -> None:
        todo = iter(asks)

        async def worker() -> None:
            for ask in todo:
                self.exchanges.append((ask, await exchange(url, ask.message, ask.manner), False))

        await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))

    async def _killed(self, server: Server) -> None:
        asks = self.asks(BURST)
        tasks = [
            asyncio.ensure_future(exchange(server.url, one.message, one.manner)) for one in asks
        ]
        await asyncio.sleep(self.rng.uniform(0.0, 0.3))
        os.kill(_engine(server), signal.SIGKILL)
        answers = await asyncio.gather(*tasks)
        self.exchanges += [(ask, answer, True) for ask, answer in zip(asks, answers, strict=True)]

    def _check_idle(self, server: Server) -> None:
        until = time.monotonic() + IDLE_S
        while (left := asyncio.run(_left(server.url))) and time.monotonic() < until:
            time.sleep(0.1)
        if left:
            self.broken.append(f"{IDLE_S} s after the last request there is still {left}")


def _command(python: str, settings: dict[str, Any], port: int) -> list[str]:
    import sys

    flags = [f"--{key.replace('_', '-')}={value}" for key, value in settings.items()]
    flags += [f"--port={port}", f"--max-body-size={MAX_BODY}"]
    return [sys.executable, "-m", "jax_engine", "serve", *flags]


KIND = Kind("jax-engine", "ours", _command)


def _engine(server: Server) -> int:
    """The engine's process: the child of the server's."""
    return quiet.tree(server.process.pid)[1]


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


async def _tokenize(url: str, words: int) -> None:
    """Texts that are new to the server's tokenizer."""
    todo = iter(range(words))

    async def worker() -> None:
        for number in todo:
            content = json.dumps({"prompt": f"text {number} " + "x" * 40}).encode()
            await exchange(url, http("/tokenize", content))

    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))


async def _left(url: str) -> dict[str, float]:
    """What /metrics counts and should be 0."""
    page = (await exchange(url, http("/metrics", None))).body.decode()
    found = {name: _value(page, name) for name in IDLE}
    return {name: value for name, value in found.items() if value}


def _value(page: str, name: str) -> float:
    values = re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", page, re.MULTILINE)
    return sum(map(float, values)) if values else float("nan")
