"""A process of a server is killed or stopped, in each phase: it ends, and takes all with it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from jax_engine import AsyncLLM
from jax_engine.errors import EngineDeadError
from jax_engine.serving import engine_client
from tests.support.http_server import HttpServer
from tests.support.patience import HANG_S, until

MP = "--distributed-executor-backend=mp"
LONG = {"prompt": "a", "n": 8, "max_tokens": 60, "ignore_eos": True}


def children(pid: int) -> list[int]:
    """All processes below this one."""
    found: list[int] = []
    with suppress(OSError):  # one that has ended meanwhile
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, path.read_text().split()):
                found += [child, *children(child)]
    return found


def runs(module: str, pid: int) -> int | None:
    """The process below this one that runs a module, if there is one yet."""
    for child in children(pid):
        with suppress(OSError):
            if module in Path(f"/proc/{child}/cmdline").read_text().split("\0"):
                return child
    return None


def waits(server: HttpServer) -> Any:
    assert server.url
    return None


def steps(server: HttpServer) -> Any:
    """A request that is open until the server has no engine any more."""
    assert server.url
    pool = ThreadPoolExecutor(1)
    answer = pool.submit(httpx2.post, f"{server.url}/v1/completions", json=LONG, timeout=HANG_S)
    until(lambda: server.metric("vllm:num_requests_running"), "the request")
    pool.shutdown(wait=False)
    return answer


def loads(server: HttpServer) -> Any:
    return None


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.parametrize("phase", [loads, waits, steps])
def test_a_runner_ends_with_its_server(
    checkpoint: Path, phase: Callable[[HttpServer], Any], number: int
) -> None:
    """The first request's steps are compiled while it runs, so that some meet a compilation."""
    server = HttpServer.of(checkpoint, MP)
    try:
        pid: Any = until(
            lambda: runs("jax_engine.engine.startup.runner_main", server.process.pid), "it"
        )
        answer = phase(server)
        below = children(server.process.pid)
        os.kill(pid, number)
        assert server.process.wait(HANG_S) not in (0, -signal.SIGKILL)
        if answer is not None:
            assert answer.exception(HANG_S) or answer.result().status_code == 500
        until(lambda: not any(Path(f"/proc/{one}").exists() for one in below), "their end")
    finally:
        server.process.kill()


def test_an_engine_that_is_stopped_while_it_starts_is_no_hang(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(folder: str) -> "subprocess.Popen[bytes]":
        code = "import sys; sys.stdin.read()"
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
        os.kill(child.pid, signal.SIGSTOP)
        return child

    monkeypatch.setattr(engine_client, "_start", start)
    monkeypatch.setattr(engine_client, "SILENCE_S", 1.0)
    with pytest.raises(EngineDeadError, match="was stopped"):
        AsyncLLM(str(checkpoint))
