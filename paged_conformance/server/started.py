"""A server that the suite starts by its command, and starts again where an example has ended it."""

import os
import shlex
import signal
import subprocess
import tempfile
import time
from contextlib import suppress

from paged_conformance.properties import Lacking
from paged_conformance.server.wire import Unanswered, Wire

START_SECONDS = 300.0  # until it lists its models
END_SECONDS = 10.0  # between being told to end and being ended
LOOK_SECONDS = 0.2
LAST = 1000  # characters of what it printed, in a message


class Started:
    """A command's process with its children.

    Args:
        command: As in a shell, without pipes.
        wire: To the address that it will listen on.
    """

    def __init__(self, command: str, wire: Wire) -> None:
        self.command, self._wire = command, wire
        self._process: subprocess.Popen[bytes] | None = None
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115  as long as this

    def again(self) -> None:
        """Ends the process if it still runs, starts another, and waits until it lists its models.

        Raises:
            Lacking: It cannot be started, it ended, or it lists none in START_SECONDS.
        """
        self.end()
        if self._answers():
            raise Lacking(f"a free address: somebody else answers at {self._wire.url}")
        try:
            self._process = subprocess.Popen(
                shlex.split(self.command),
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that its children can be ended, too
            )
        except (OSError, ValueError) as error:
            raise Lacking(f"{self.command!r} cannot be started: {error}") from error
        end = time.monotonic() + START_SECONDS
        while not self._answers():
            status = self._process.poll()
            if status is not None or time.monotonic() > end:
                self.end()
                what = f"ended with {status}" if status is not None else "lists no models"
                raise Lacking(f"{self.command!r} {what}; it last printed: {self._last_printed()}")
            time.sleep(LOOK_SECONDS)

    def end(self) -> None:
        """Ends the process and its children."""
        if self._process is None:
            return
        for number, seconds in ((signal.SIGTERM, END_SECONDS), (signal.SIGKILL, None)):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        self._process = None

    def _answers(self) -> bool:
        patience, self._wire.patience = self._wire.patience, min(5.0, self._wire.patience)
        try:
            return self._wire.send("GET", "/models").status == 200
        except Unanswered:
            return False
        finally:
            self._wire.patience = patience

    def _last_printed(self) -> str:
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - LAST))
        found = self._printed.read().decode(errors="replace").strip()
        self._printed.seek(0, os.SEEK_END)
        return found or "nothing"
