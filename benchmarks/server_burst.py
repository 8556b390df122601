"""How long `/health` takes while 1,000 streams arrive at once and long texts are tokenised.

    python -m benchmarks server_burst --streams 20 --texts 1 MODEL --max-model-len 8192

Behind the flags come those of `jax-engine serve`, a model first. Another process asks for `/health`
50 times a second, over a connection that stays open. Texts of 100,000 tokens come one after
another; where the model is shorter, they are refused once they are counted. A text of 30 MB is
refused by its length.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import uvloop

from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.report import ROOT
from benchmarks.tiny import measured_model

WORDS = "The server reads a long text and counts its tokens, one after another, as it goes on. "
TEXT_TOKENS, HUGE_BYTES = 100_000, 30_000_000
SETTLE_S = 2.0


@contextmanager
def probed(url: str, found: dict[str, Any]) -> Iterator[None]:
    """Fills `found` with the latency of /health, measured by another process meanwhile."""
    command = [sys.executable, "-m", "benchmarks.health_probe", url]
    with subprocess.Popen(command, stdin=-1, stdout=-1, cwd=ROOT) as process:
        time.sleep(SETTLE_S)  # it starts
        yield
        out, _ = process.communicate()
    waits = 1e3 * np.asarray(json.loads(out))
    found |= {
        "health_answers": len(waits),
        "health_p50_ms": round(float(np.median(waits)), 2),
        "health_p99_ms": round(float(np.percentile(waits, 99)), 2),
        "health_max_ms": round(float(waits.max()), 2),
    }


@contextmanager
def served(flags: list[str]) -> Iterator[tuple[str, int]]:
    """A server's address, and its process."""
    command = [sys.executable, "-m", "jax_engine", "serve", *flags, "--port=0"]
    command += ["--max-num-seqs=64", "--disable-log-stats"]
    with (
        tempfile.NamedTemporaryFile() as log,
        subprocess.Popen(command, stderr=log, cwd=ROOT) as process,
    ):
        try:
            yield _address(process, Path(log.name)), process.pid
        finally:
            process.terminate()


def _address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    while True:
        lines = log.read_text()
        found = re.search(r"served at (http://[\w.:]+)", lines)
        if found:
            return found[1]
        if process.poll() is not None:
            raise SystemExit(f"the server did not start:\n{lines}")
        time.sleep(0.1)


async def _stream(session: aiohttp.ClientSession, url: str, number: int) -> float:
    """Seconds until the first token of a stream."""
    body = {"prompt": f"{number}. {WORDS}", "max_tokens": 8, "ignore_eos": True, "stream": True}
    started, first = time.perf_counter(), 0.0
    async with session.post(f"{url}/v1/completions", json=body) as answer:
        answer.raise_for_status()
        async for _ in answer.content:
            first = first or time.perf_counter() - started
    return first


async def _text(session: aiohttp.ClientSession, url: str, text: str) -> tuple[float, str]:
    """Seconds until a text is refused, and why."""
    started = time.perf_counter()
    async with session.post(f"{url}/v1/completions", json={"prompt": text}) as answer:
        message = (await answer.json())["error"]["message"]
    return time.perf_counter() - started, message


async def _load(url: str, streams: int, texts: int) -> dict[str, Any]:
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    long = WORDS * (TEXT_TOKENS // 17)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        started = time.perf_counter()
        opened = [asyncio.ensure_future(_stream(session, url, i)) for i in range(streams)]
        taken = [await _text(session, url, f"{i} {long}") for i in range(texts)]
        firsts = await asyncio.gather(*opened)
        found: dict[str, Any] = {"seconds": round(time.perf_counter() - started, 2)}
    if firsts:
        found["ttft_p50_s"] = round(float(np.median(firsts)), 3)
    if taken:
        found["text_s"] = round(float(np.median([seconds for seconds, _ in taken])), 3)
        found["text_says"] = taken[0][1]
    return found


async def _huge(url: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session:
        seconds, message = await _text(session, url, WORDS * (HUGE_BYTES // len(WORDS)))
    return {"text_s": round(seconds, 3), "text_says": message}


def _memory_mib(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def run(args: argparse.Namespace) -> Iterator[Figures]:
    loads = {
        "idle": (0, 0),
        "streams": (args.streams, 0),
        "texts": (0, args.texts),
        "streams_and_texts": (args.streams, args.texts),
    }
    with measured_model(args) as model:
        own = [model["model"], "--load-format=dummy"] if args.smoke else args.server
        with served(own) as (url, pid):
            uvloop.run(_load(url, args.streams, 1))  # compiles, and imports what is imported late
            before = _memory_mib(pid)
            for name, (streams, texts) in loads.items():
                row: dict[str, Any] = {}
                with probed(url, row):
                    row |= uvloop.run(_load(url, streams, texts))
                    if name == "idle":
                        time.sleep(SETTLE_S)
                yield {name: row}
            row = {}
            with probed(url, row):
                row |= uvloop.run(_huge(url))
            yield {"huge_text": row, "memory_grew_mib": _memory_mib(pid) - before}


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--streams", type=int, default=1000, help="(%(default)s)"),
        flag("--texts", type=int, default=20, help="(%(default)s)"),
        flag("server", nargs=argparse.REMAINDER, help="a model and flags, as `serve` takes them"),
    ),
    smoke={"streams": 4, "texts": 1},
)
