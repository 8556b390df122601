"""The process of a runner without a device, which may come to grief: a module to start."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from cpu_kernels.meeting.shared_memory import ABORTED, LINE
from jax_engine.parallel.collectives import ProcessRank
from jax_engine.processes.runner_process import serve
from jax_engine.processes.stage_link import Folders
from jax_engine.step import Capabilities, Step, StepResult
from tests.support.reading_model import ReadingModel
from tests.support.strategies import EOS
from tests.support.stub_runner import StubRunner

MODULE = "tests.support.stub_process"
ENDS = {
    "killed": "signal 9",
    "exit": "exit status 3",
    "stopped": "has said nothing",
    "waits": "has done nothing for",
    "spins": "has run for",
}


class Grief(NamedTuple):
    """What happens at which call of a method, counted from 0.

    One of ENDS, "raises", or "differs": another step was carried out.
    """

    what: str
    method: str
    after: int


class Meeting:
    """A runner that waits in each step for those of the other processes."""

    def __init__(self, runner: StubRunner, seat: ProcessRank) -> None:
        self._runner, self._rank = runner, seat.rank
        self._words, lines = seat.opened()._words, range(LINE, LINE * (1 + seat.size), LINE)
        self._lines = list(lines)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def launch(self, step: Step) -> Any:
        words, own = self._words, self._lines[self._rank]
        words[own] += 1
        while words[self._lines].min() < words[own] and not words[ABORTED]:
            time.sleep(0.03)  # more often, and it would seem to compute
        return self._runner.launch(step)


class Grieving:
    """A runner until then."""

    def __init__(self, runner: Any, grief: Grief) -> None:
        self._runner, self._grief, self._left = runner, grief, grief.after

    def __getattr__(self, name: str) -> Any:
        if name == self._grief.method:
            self._left -= 1
            if self._left == -1 and self._grief.what == "differs":
                return self._other
            if self._left == -1:
                self._come(self._grief.what)
        return getattr(self._runner, name)

    def _other(self, ticket: Any) -> StepResult:
        return replace(self._runner.collect(ticket), digest=b"another")

    def _come(self, what: str) -> None:
        if what == "raises":
            raise ArithmeticError("no such luck")
        if what == "exit":
            os._exit(3)
        signals = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
        if what in signals:
            os.kill(os.getpid(), signals[what])
        while True:
            if what != "spins":
                time.sleep(1.0)


def build(
    settings: tuple[Capabilities, Grief, ProcessRank | None], folders: Folders
) -> tuple[Any, Sequence[Any]]:
    known, grief, seat = settings
    runner: Any = StubRunner(ReadingModel(), known, {EOS})
    if seat is not None:
        runner = Meeting(runner, seat)
    return known, [Grieving(runner, grief)]


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1], build))
