"""Ctrl-C between steps instead of in the middle of one.

A step donates the KV cache to the device and advances the scheduler; an exception in the middle
of it would lose the one or disagree with the other. So during `generate` the signal is only
noted, and acted on when the step is over. A second Ctrl-C interrupts at once.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass(slots=True)
class Interrupt:
    """
    Attributes:
        pressed: Whether Ctrl-C was pressed.
        held: Set while a second one must be noted only, too.
    """

    pressed: bool = False
    held: bool = False


@contextmanager
def deferred_interrupt(wake: Callable[[], None] = lambda: None) -> Iterator[Interrupt]:
    """Notes Ctrl-C in the main thread, where Python delivers it; elsewhere does nothing.

    Args:
        wake: Called in the signal's handler, for a thread that waits.
    """
    interrupt = Interrupt()
    # What the user ignores stays ignored.
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored or threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def note(signum: int, frame: FrameType | None) -> None:
        if interrupt.pressed and not interrupt.held:
            raise KeyboardInterrupt
        interrupt.pressed = True
        wake()

    previous = signal.signal(signal.SIGINT, note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)
