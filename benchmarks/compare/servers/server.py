"""Servers as processes: started, timed until they answer, ended."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.compare import quiet
from benchmarks.report import ROOT

MODEL = "bench"  # what clients call the model
PATIENCE_S = 900


@dataclass(frozen=True)
class Kind:
    """How a server is started.

    Attributes:
        peer: name of the peer in `environments.PEERS` whose Python runs it.
        command: (Python, settings, port) -> command.
        environment: variables beside those of this process.
    """

    title: str
    peer: str
    command: Callable[[str, dict[str, Any], int], list[str]]
    environment: tuple[tuple[str, str], ...] = ()


def _ours(python: str, settings: dict[str, Any], port: int) -> list[str]:
    blocks = settings["kv_cache_bytes"] // settings["kv_bytes_per_token"] // 16
    flags = ["--block-size=16", f"--num-gpu-blocks-override={blocks}", f"--port={port}"]
    flags += [f"--load-format={settings['load_format']}", *_common(settings)]
    return [python, "-m", "jax_engine", "serve", settings["model"], *flags]


def _vllm(python: str, settings: dict[str, Any], port: int) -> list[str]:
    flags = ["--model", settings["model"], "--port", str(port), "--host", "127.0.0.1"]
    return [python, "-m", "vllm.entrypoints.openai.api_server", *flags, *_common(settings)]


def _common(settings: dict[str, Any]) -> list[str]:
    names = ("dtype", "max_model_len", "max_num_seqs")
    flags = [f"--{name.replace('_', '-')}={settings[name]}" for name in names]
    return [*flags, f"--served-model-name={MODEL}"]


VLLM_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_CPU_OMP_THREADS_BIND": f"0-{(os.cpu_count() or 1) - 1}",
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
    "HF_HUB_OFFLINE": "1",
    "VLLM_USE_AOT_COMPILE": "0",  # as in peers/vllm_cpu.py
}
KINDS = {
    "ours": Kind("jax-engine", "ours", _ours, (("PYTHONPATH", str(ROOT)),)),
    "vllm": Kind("vLLM (CPU build)", "vllm", _vllm, tuple(VLLM_ENVIRONMENT.items())),
}


class ServerFailed(Exception):
    """It ended, or did not answer."""


class Server:
    """A running server.

    Attributes:
        ready_s: seconds of the fresh process until /health was 200.
    """

    def __init__(self, kind: Kind, python: str, settings: dict[str, Any], log: Path) -> None:
        """Starts it, and waits until it answers.

        Raises:
            ServerFailed: it ended first.
        """
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.title, self.url = kind.title, f"http://127.0.0.1:{port}"
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        with log.open("w") as lines:
            self.process = subprocess.Popen(
                kind.command(python, settings, port),
                stdin=subprocess.DEVNULL,
                stdout=lines,
                stderr=lines,
                env=os.environ | dict(kind.environment),
                start_new_session=True,
            )
        try:
            self._wait(started + PATIENCE_S)
        except BaseException:
            self.close()
            raise
        self.ready_s = round(time.monotonic() - started, 2)

    def _wait(self, until: float) -> None:
        while time.monotonic() < until:
            if self.process.poll() is not None:
                last = self._log.read_text(errors="replace").strip().splitlines()[-1:]
                raise ServerFailed(f"ended with status {self.process.returncode}: {last}")
            with suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=5):
                return
            time.sleep(0.02)
        raise ServerFailed(f"did not answer within {PATIENCE_S} s")

    def pids(self) -> list[int]:
        """The ids of all its processes."""
        return quiet.tree(self.process.pid)

    def close(self) -> None:
        """Ends it: at once if it does not by itself."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def python_of(kind: Kind) -> str:
    """Its interpreter, installed if it is not there."""
    from benchmarks.compare.environments import PEERS, interpreter

    return sys.executable if kind.peer == "ours" else interpreter(PEERS[kind.peer])
