"""The process of a runner without a device, which may come to grief: a module to start."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from jax_engine.processes.runner_process import serve
from jax_engine.step import Capabilities
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
    """What happens at which call of a method, counted from 0: one of ENDS, or "raises"."""

    what: str
    method: str
    after: int


class Grieving:
    """A runner until then."""

    def __init__(self, runner: StubRunner, grief: Grief) -> None:
        self._runner, self._grief, self._left = runner, grief, grief.after

    def __getattr__(self, name: str) -> Any:
        if name == self._grief.method:
            self._left -= 1
            if self._left == -1:
                self._come(self._grief.what)
        return getattr(self._runner, name)

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


def build(settings: tuple[Capabilities, Grief]) -> tuple[Any, Sequence[Any]]:
    known, grief = settings
    return known, [Grieving(StubRunner(ReadingModel(), known, {EOS}), grief)]


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1], build))
