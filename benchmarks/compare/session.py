"""One peer's process: started, asked for passes, kept still while others run, ended."""

import json
import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.compare import quiet
from benchmarks.compare.environments import Peer
from benchmarks.compare.workloads import Job
from benchmarks.report import ROOT

SCRIPTS = Path(__file__).parent / "peers"
ONE_TOKEN = Job([5, 6, 7, 8], 1)
PATIENCE_S = 3600  # for a start or a pass; the slowest that was seen took a quarter of it


class PeerFailed(Exception):
    """What the peer said, or where it wrote what it said."""


class Session:
    """A running peer.

    Attributes:
        start_up: Seconds of the fresh process until it was ready, and until its first token.
        versions: The versions of its packages.
    """

    def __init__(self, peer: Peer, python: str, settings: dict[str, Any], log: Path) -> None:
        """Starts it and waits for its first token.

        Raises:
            PeerFailed: It ended, answered with an error, or not at all.
        """
        self.title, self.log = peer.title, log
        log.parent.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [python, str(SCRIPTS / peer.script), json.dumps(settings | dict(peer.settings))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | ({"PYTHONPATH": str(ROOT)} if peer.environment is None else {}),
                start_new_session=True,
            )
        try:
            self.versions: dict[str, str] = self._read()["versions"]
            ready = time.monotonic() - started
            self.ask([ONE_TOKEN])
        except BaseException:
            self.close()
            raise
        first_token = time.monotonic() - started
        self.start_up = {"ready_s": round(ready, 2), "first_token_s": round(first_token, 2)}

    def ask(self, jobs: list[Job]) -> dict[str, Any]:
        """One pass over these requests.

        Raises:
            PeerFailed: It ended, answered with an error, or not at all.
        """
        assert self._process.stdin is not None
        message = json.dumps({"requests": [asdict(job) for job in jobs]})
        with suppress(BrokenPipeError):  # the answer says why
            self._process.stdin.write(message + "\n")
            self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], PATIENCE_S)[0]:
            raise PeerFailed(f"no answer for {PATIENCE_S} s; see its log")
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            last = self.log.read_text(errors="replace").strip().splitlines()[-1:]
            raise PeerFailed(f"ended with status {status}: {' '.join(last) or 'no message'}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerFailed(answer["error"])
        return answer

    def pids(self) -> list[int]:
        return quiet.tree(self._process.pid)

    def pause(self) -> None:
        """Stops its threads, some of which spin while they wait for work."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # it has failed; reading its answer says why
            os.killpg(self._process.pid, number)

    def forget_peak(self) -> None:
        """The peak of memory counts from now on."""
        for pid in self.pids():
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def peak_memory_mib(self) -> int:
        """Its own and its children's."""
        return quiet.peak_memory_mib(self.pids())

    def close(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
