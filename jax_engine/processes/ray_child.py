"""The process of a Ray actor, seen from its driver: by its process id, and without Ray."""

import os
import select
import signal
import subprocess
from contextlib import suppress
from typing import Any

from jax_engine.errors import EngineDeadError


class RayChild:
    """The process of an actor: as much of a `subprocess.Popen` as is asked of one.

    Args:
        actor: Its handle, which keeps it.
        serving: What Ray promises of the call that runs in it.

    Raises:
        EngineDeadError: There is no such process any more.
    """

    stdin = None

    def __init__(self, actor: Any, pid: int, serving: Any) -> None:
        self.pid = pid
        self._kept = actor, serving
        try:
            self._end = os.pidfd_open(pid)
        except ProcessLookupError:
            raise EngineDeadError(f"a Ray actor (pid {pid}) ended while it started") from None

    def poll(self) -> int | None:
        """Its exit status is Ray's to know: 0 if it has ended, None if not."""
        return 0 if self._has_ended(0.0) else None

    def wait(self, timeout: float | None = None) -> int | None:
        """Waits for its end, whatever its status is.

        Raises:
            subprocess.TimeoutExpired: It runs after so many seconds.
        """
        if not self._has_ended(timeout):
            raise subprocess.TimeoutExpired("a Ray actor", timeout or 0.0)
        return None

    def kill(self) -> None:
        """Ends it at once, also if it was stopped."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._end, signal.SIGKILL)

    def _has_ended(self, timeout: float | None) -> bool:
        ending = select.poll()
        ending.register(self._end, select.POLLIN)
        return bool(ending.poll(None if timeout is None else 1000 * timeout))

    def __del__(self) -> None:
        if hasattr(self, "_end"):
            os.close(self._end)
