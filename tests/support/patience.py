"""Waiting in tests: for what must come, with a limit that only a hang meets.

A machine may be many times slower than the one where a test was written, and have other work. So
no test asserts that something took less than some seconds; it waits for the event itself.
"""

import threading
import time
from collections.abc import Callable

HANG_S = 900.0  # a hundred times what the slowest of these waits takes on two idle cores
# `jax-engine` with limits that only a hang meets: an engine that is slow to answer is waited for,
# where a server would show the numbers of the time before, or say that the engine is dead.
PATIENT = f"""
import sys
from jax_engine.serving import engine_client, stat_loggers, tracing
from jax_engine.serving.api import server, web_page
engine_client.SILENCE_S = tracing.FLUSH_S = stat_loggers.WAIT_S = web_page.WAIT_S = {HANG_S}
from jax_engine.cli import main
sys.exit(main(sys.argv[1:]))
"""


def until[Value](holds: Callable[[], Value], what: str = "it") -> Value:
    """Waits for a true value, and returns it.

    Raises:
        AssertionError: HANG_S seconds were not enough.
    """
    end = time.monotonic() + HANG_S
    while not (value := holds()):
        assert time.monotonic() < end, f"{what} never happened"
        time.sleep(0.002)
    return value


def join(*threads: threading.Thread) -> None:
    """Waits for threads to end.

    Raises:
        AssertionError: HANG_S seconds were not enough.
    """
    end = time.monotonic() + HANG_S
    for one in threads:
        one.join(max(0.0, end - time.monotonic()))
    hang = [one.name for one in threads if one.is_alive()]
    assert not hang, f"threads hang: {hang}"
