"""What servers are asked, and what is measured of their answers."""

import asyncio
import json
import os
import time
from collections.abc import Awaitable
from typing import Any

import aiohttp
import numpy as np
import uvloop

from benchmarks.compare import quiet
from benchmarks.compare.passes import requests_of
from benchmarks.compare.servers.server import MODEL, Server
from benchmarks.compare.workloads import DECODING, LONG_AT_S, LONG_PROMPT, Scale
from jax_engine.commands.bench.benchmark_request import (
    BenchmarkRequest,
    Outcome,
    Target,
    arrival_times,
)
from jax_engine.commands.bench.client import Client, replay
from jax_engine.commands.bench.figures import figures

GOODPUT = {"ttft": 1000.0, "tpot": 100.0}
KEPT = (
    "completed", "failed", "output_throughput", "request_throughput", "request_goodput",
    "median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "p99_tpot_ms", "p99_itl_ms",
    "mean_normalized_latency_ms",
)  # fmt: skip
HEALTH_EVERY_S = 0.05
FIRST_TOKEN = 3


def target(server: Server) -> Target:
    extra = {"ignore_eos": True, "temperature": 0.0}
    return Target(f"{server.url}/v1/completions", MODEL, extra=extra)


def w1(scale: Scale, turn: int, again: int = 0) -> list[BenchmarkRequest]:
    """W1's requests of a turn; asked again, they have other tokens: none of them is in a cache."""
    jobs = requests_of("W1", scale, turn, again)
    return [BenchmarkRequest(job.prompt, len(job.prompt), job.output_len) for job in jobs]


def shapes_like_w1(count: int, scale: Scale, seed: int) -> list[BenchmarkRequest]:
    """More requests of W1's lengths."""
    rng = np.random.default_rng([seed, count])
    low, high = max(2, 16 // scale.divide), 128 // scale.divide
    lengths = rng.integers(low, high + 1, size=(count, 2)).tolist()
    return [
        BenchmarkRequest(
            rng.integers(FIRST_TOKEN, scale.vocab_size, size=prompt).tolist(), prompt, output
        )
        for prompt, output in lengths
    ]


def run(server: Server, asks: list[BenchmarkRequest], rate: float = float("inf")) -> dict[str, Any]:
    """Figures of a load, and the latency of /health beside it."""
    times = arrival_times(len(asks), rate, 1.0, np.random.default_rng(0))

    waits: list[float] = []

    async def measured() -> tuple[list[Outcome], float]:
        async with Client(target(server)) as client:
            return await beside(replay(client, asks, times), _ask_health(server, waits))

    pids = [*server.pids(), os.getpid()]
    busy, used, started = quiet.busy_seconds(), quiet.used_seconds(pids), time.monotonic()
    outcomes, duration = uvloop.run(measured())
    others = (quiet.busy_seconds() - busy) - (quiet.used_seconds(pids) - used)
    found = figures(outcomes, duration, goodput=GOODPUT)
    errors = sorted({one.error for one in outcomes if one.error})
    health = 1e3 * np.asarray(waits or [0.0])
    return {
        **{name: round(found[name], 3) for name in KEPT},
        "health_p50_ms": round(float(np.median(health)), 2),
        "health_max_ms": round(float(health.max()), 2),
        "others_cores": round(max(0.0, others) / (time.monotonic() - started), 3),
        **({"errors": errors[:3]} if errors else {}),
    }


def run_whole(server: Server, asks: list[BenchmarkRequest]) -> dict[str, Any]:
    """Figures of requests that do not stream, all sent at once."""
    goal = target(server)

    async def one(session: aiohttp.ClientSession, ask: BenchmarkRequest) -> int:
        body = json.loads(goal.body(ask)) | {"stream": False, "stream_options": None}
        async with session.post(goal.url, json=body, raise_for_status=True) as answer:
            return int((await answer.json())["usage"]["completion_tokens"])

    async def all_of_them() -> int:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            return sum(await asyncio.gather(*(one(session, ask) for ask in asks)))

    pids = [*server.pids(), os.getpid()]
    busy, used, started = quiet.busy_seconds(), quiet.used_seconds(pids), time.monotonic()
    tokens = uvloop.run(all_of_them())
    duration = time.monotonic() - started
    others = (quiet.busy_seconds() - busy) - (quiet.used_seconds(pids) - used)
    return {
        "output_throughput": round(tokens / duration, 3),
        "others_cores": round(max(0.0, others) / duration, 3),
    }


def run_beside_prompts(server: Server, scale: Scale, turn: int) -> dict[str, Any]:
    """How long streams wait for a token while two long prompts come, and the prompts' own TTFT."""
    rng = np.random.default_rng([turn, DECODING])

    def ask(prompt: int, output: int) -> BenchmarkRequest:
        prompt //= scale.divide
        tokens = rng.integers(FIRST_TOKEN, scale.vocab_size, size=prompt).tolist()
        return BenchmarkRequest(tokens, prompt, output // scale.divide)

    asks = [ask(32, 160) for _ in range(DECODING)] + [ask(LONG_PROMPT, 16) for _ in LONG_AT_S]
    times = np.array([0.0] * DECODING + [at / scale.divide for at in LONG_AT_S])

    async def measured() -> tuple[list[Outcome], float]:
        async with Client(target(server)) as client:
            return await replay(client, asks, times)

    outcomes, duration = uvloop.run(measured())
    failed = sum(one.error is not None for one in outcomes)
    waits = [gap for one in outcomes[:DECODING] for gap in one.between] or [0.0]
    firsts = [one.time_to_first for one in outcomes[DECODING:] if one.error is None] or [0.0]
    tokens = sum(one.num_output for one in outcomes)
    return {
        "failed": failed,
        "output_throughput": round(tokens / duration, 3),
        "median_itl_ms": round(1e3 * float(np.median(waits)), 3),
        "longest_itl_ms": round(1e3 * max(waits), 3),
        "prompt_ttft_ms": round(1e3 * float(np.mean(firsts)), 3),
    }


async def beside[T](work: Awaitable[T], other: Awaitable[Any]) -> T:
    """The result of work; the other runs for as long."""
    task = asyncio.ensure_future(other)
    try:
        return await work
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _ask_health(server: Server, waits: list[float]) -> None:
    """Asks until it is cancelled, over a connection that stays open."""
    async with aiohttp.ClientSession() as session:
        while True:
            await asyncio.sleep(HEALTH_EVERY_S)
            started = time.perf_counter()
            async with session.get(f"{server.url}/health") as answer:
                await answer.read()
            waits.append(time.perf_counter() - started)
