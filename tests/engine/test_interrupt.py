"""Ctrl-C between steps: the first is noted, the second interrupts; what was set comes back."""

import signal
import threading
from typing import Any

import pytest

from jax_engine.engine.interrupt import deferred_interrupt


@pytest.fixture(autouse=True)
def handler() -> Any:
    """Each test begins with Python's own handler, which raises, and leaves what was there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_the_first_is_noted_and_the_second_interrupts(handler: Any) -> None:
    woken: list[int] = []
    with (
        pytest.raises(KeyboardInterrupt),
        deferred_interrupt(lambda: woken.append(1)) as interrupt,
    ):
        assert not interrupt.pressed
        signal.raise_signal(signal.SIGINT)
        assert interrupt.pressed and woken == [1]
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second one was held back")
    assert woken == [1]
    assert signal.getsignal(signal.SIGINT) is handler


def test_while_a_call_cleans_up_a_second_one_waits(handler: Any) -> None:
    with deferred_interrupt() as interrupt:
        interrupt.held = True
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert interrupt.pressed
    assert signal.getsignal(signal.SIGINT) is handler


def test_who_ignores_ctrl_c_goes_on_ignoring_it() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with deferred_interrupt() as interrupt:
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.raise_signal(signal.SIGINT)
    assert not interrupt.pressed


def test_in_another_thread_it_does_nothing(handler: Any) -> None:
    found: list[Any] = []

    def work() -> None:
        with deferred_interrupt() as interrupt:
            found.extend([interrupt.pressed, signal.getsignal(signal.SIGINT)])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False, handler]
