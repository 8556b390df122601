"""Ctrl-C between steps instead of in the middle of one.

A step donates the KV cache to the device and advances the scheduler; an exception in the middle
of it would lose the one or disagree with the other. So during `generate` the signal is only
noted, and acted on when the step is over. A second Ctrl-C interrupts at once.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Yields a function that tells whether Ctrl-C was pressed since."""
    # Python delivers signals to the main thread only; and what the user ignores stays ignored.
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    pressed = False

    def note(signum: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    previous = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, previous)
