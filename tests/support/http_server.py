"""`jax-engine serve` as a process, on a free port."""

import re
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.support.patience import HANG_S, PATIENT, until

FLAGS = [
    "--block-size=4", "--max-model-len=64", "--max-num-seqs=8", "--num-gpu-blocks-override=60",
    "--port=0",
]  # fmt: skip


@dataclass
class HttpServer:
    """A server that starts when this is made; `url` waits until it answers."""

    process: "subprocess.Popen[str]"
    lines: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, checkpoint: Path, *flags: str, first: str = "") -> "HttpServer":
        """
        Args:
            first: a statement that the server's process begins with.
        """
        code = PATIENT.replace("from jax_engine.cli", f"{first}\nfrom jax_engine.cli")
        command = [sys.executable, "-c", code, "serve", str(checkpoint), *FLAGS, *flags]
        return cls.started(command)

    @classmethod
    def started(cls, command: list[str]) -> "HttpServer":
        """A server that a command starts."""
        server = cls(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        threading.Thread(target=server._read, daemon=True).start()
        return server

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines += iter(self.process.stderr.readline, "")

    @property
    def url(self) -> str:
        return until(self._url, "the start of a server")

    def _url(self) -> str | None:
        ended = self.process.poll() is not None
        found = re.search(r"served at (https?://[\w.:]+)", "".join(self.lines))
        assert found or not ended, self.lines
        return found[1] if found else None

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        page = httpx2.get(f"{self.url}/metrics", timeout=HANG_S).text
        values = re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", page, re.MULTILINE)
        assert values, page
        return sum(map(float, values))

    def idle(self) -> bool:
        """I9, I22: in the end nothing is left of anybody."""
        names = ("jax_engine:num_used_blocks", "jax_engine:num_requests_open")
        names += ("vllm:num_requests_running", "vllm:num_requests_waiting")
        return until(lambda: not any(self.metric(name) for name in names), "an idle server")

    def engine_pid(self) -> int:
        """The engine's process: the one child of the server."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        (pid,) = children.read_text().split()
        return int(pid)

    def stop(self) -> Any:
        """Ends the process as SIGTERM does; returns its exit status."""
        self.process.terminate()
        try:
            return self.process.wait(HANG_S)
        finally:
            self.process.kill()
