"""Servers of users' own, around vLLM's parts: they listen, answer, end with a client, and close."""

import argparse
import asyncio
import contextlib
import http.client
import json
import resource
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from jax_engine.compat.server_parts import set_ulimit, with_cancellation
from jax_engine.compat.stand_ins import FlexibleArgumentParser
from tests.support.patience import HANG_S

PROGRAM = """
import asyncio
import sys

from fastapi import FastAPI, Request

import vllm.envs as envs
from vllm.entrypoints.launchers.launcher import serve_http
from vllm.entrypoints.serve.utils.api_utils import with_cancellation
from vllm.usage.usage_lib import UsageContext
from vllm.utils.system_utils import set_ulimit
from vllm.version import __version__

app = FastAPI()

@app.get("/health")
async def health():
    return {"version": __version__, "context": UsageContext.API_SERVER}

@app.post("/wait")
async def wait(request: Request):
    await request.json()
    return await _wait(1, raw_request=request)

@with_cancellation
async def _wait(one, raw_request):
    try:
        print("waits", flush=True)
        await asyncio.sleep(1e6)
    finally:
        print("ended", flush=True)

async def main():
    set_ulimit()
    keep = envs.VLLM_HTTP_TIMEOUT_KEEP_ALIVE
    left = await serve_http(
        app,
        sock=None,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        access_log=False,
        timeout_keep_alive=keep,
    )
    await left
    print("closed", flush=True)

asyncio.run(main())
"""


def _answer(port: int, method: str, path: str, body: str | None = None) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)
    with contextlib.closing(connection):
        connection.request(method, path, body)
        return connection.getresponse().read()


def test_a_server_of_one_s_own(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "jax_engine.compat.vllm", str(program), str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    killer = threading.Timer(HANG_S, process.kill)
    killer.start()
    try:
        assert process.stdout is not None and process.stderr is not None
        while "running on" not in process.stderr.readline():
            assert process.poll() is None
        found = json.loads(_answer(port, "GET", "/health"))
        assert found == {"version": "0.32.0", "context": "API_SERVER"}
        leaving = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)
        leaving.request("POST", "/wait", "{}")
        assert process.stdout.readline() == "waits\n"
        leaving.close()
        assert process.stdout.readline() == "ended\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "closed\n"
        assert process.wait() == 0
    finally:
        killer.cancel()
        process.kill()
        process.communicate()


class Stays:
    """A request whose client waits."""

    async def receive(self) -> dict[str, str]:
        await asyncio.Event().wait()
        raise AssertionError


def test_a_handler_s_answer_and_error_are_passed_on() -> None:
    @with_cancellation
    async def answer(body: int, raw_request: object) -> int:
        return 10 // body

    assert asyncio.run(answer(5, Stays())) == 2
    assert asyncio.run(answer(5, raw_request=Stays())) == 2
    with pytest.raises(ZeroDivisionError):
        asyncio.run(answer(0, Stays()))


def test_open_files_are_never_fewer() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    set_ulimit(1)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
    set_ulimit(before[1] + 1 if before[1] > 0 else 1)  # more than there may be
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


@pytest.mark.parametrize("value", ["80", "65536", "-8000", "x", ""])
def test_ports(value: str) -> None:
    assert FlexibleArgumentParser.check_port("8000") == 8000
    with pytest.raises(argparse.ArgumentTypeError, match="from 1024 to 65535"):
        FlexibleArgumentParser.check_port(value)
