"""The engine's lock: re-entrant while others wait, first come first served, never left locked."""

import threading
from collections.abc import Callable

import pytest

from jax_engine.engine.engine_lock import EngineLock
from jax_engine.errors import ForkedProcessError
from tests.support.patience import join, until


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_who_has_it_may_enter_again_while_another_waits() -> None:
    lock, order = EngineLock(), list[str]()

    def wait() -> None:
        with lock:
            order.append("other")

    def hold() -> None:
        with lock:
            other = in_thread(wait)
            until(lock._gate.locked)
            with lock:
                order.append("inner")
        with lock:  # the other came first
            order.append("again")
        join(other)

    join(in_thread(hold))  # it does not wait for itself
    assert order == ["inner", "other", "again"]


def test_a_fork_of_the_process_is_refused() -> None:
    lock = EngineLock()
    lock.check_process()
    lock._pid += 1  # as if another process had made it
    with pytest.raises(ForkedProcessError, match=r'get_context\("spawn"\)'):
        lock.check_process()
    with pytest.raises(ForkedProcessError), lock:
        pass
    assert not lock._is_owned() and not lock._gate.locked()  # type: ignore[attr-defined]


def test_interrupted_the_moment_it_was_ours() -> None:
    """Ctrl-C behind the last line that can be guarded: whoever is next gets the lock."""

    class Interrupting:
        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            raise KeyboardInterrupt

    lock = EngineLock()
    lock._gate = Interrupting()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt), lock:
        pass
    assert not lock._is_owned()  # type: ignore[attr-defined]
