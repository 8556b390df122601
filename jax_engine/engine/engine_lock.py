"""The lock of one engine: re-entrant, fair, and only for the process that built the engine.

The thread that steps releases the lock and takes it again at once. With an ordinary lock it could
do so before a thread that waits has woken up, for as long as there are steps.
"""

import os
from _thread import RLock  # `threading.RLock` is a function: no base for a class
from threading import Lock

from jax_engine.errors import ForkedProcessError


class EngineLock(RLock):  # type: ignore[misc]  # final for typeshed, not for Python
    """Use it with `with`.

    Leaving is RLock's own, in C: no signal handler can run, and raise, before it has released.
    """

    def __init__(self) -> None:
        super().__init__()
        self._gate = Lock()
        self._pid = os.getpid()

    def check_process(self) -> None:
        """
        Raises:
            ForkedProcessError: This process is a fork of the one that built the engine.
        """
        if os.getpid() != self._pid:
            raise ForkedProcessError(
                f"the engine of process {self._pid} cannot be used in process {os.getpid()}, a "
                "fork of it: JAX's threads are not in a fork, which would hang. Build an engine "
                'in the child, started with multiprocessing.get_context("spawn")'
            )

    def __enter__(self) -> bool:  # type: ignore[override]
        """Waits its turn.

        Raises:
            ForkedProcessError: At once, whoever had the lock when the process was forked.
        """
        self.check_process()
        if self._mine():
            return super().__enter__()
        try:
            # Who waits for the lock has the gate: who has just left the lock is behind it.
            with self._gate:
                return super().__enter__()
        except BaseException:  # Ctrl-C, the moment it was ours
            if self._mine():
                self.release()
            raise

    def _mine(self) -> bool:
        return bool(self._is_owned())  # type: ignore[attr-defined]  # as threading.Condition does
