"""What becomes of calls, one by one: in the process, and at the driver that has called."""

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from jax_engine.errors import OutOfMemoryError, StepFailedError
from jax_engine.processes import runner_process
from jax_engine.processes.child_process import ThreadActivity
from jax_engine.processes.runner_messages import Answer, Call, Heartbeat, message
from jax_engine.processes.runner_process import RunnerServer, picklable_error
from jax_engine.progress_log import compiling
from jax_engine.step import Moves, Samples, Step
from tests.support.in_server import in_servers
from tests.support.patience import until

NOTHING: Any = Step([], Samples([], []), [], Moves([], [], []), [], [])  # type: ignore[arg-type]


class Runner:
    """Launches what it is told to, unless that is an error; a ticket is a list."""

    capabilities = None

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.error: Exception | None = None

    def launch(self, step: Any) -> list[int]:
        self.said.append("launch")
        if self.error is not None:
            raise self.error
        return [len(self.said)]

    def collect(self, ticket: list[int]) -> list[int]:
        self.said.append("collect")
        return ticket

    def recover(self) -> None:
        self.said.append("recover")
        self.error = None

    def host_room(self, blocks: list[int]) -> bool:
        self.said.append("room")
        return len(blocks) < 3

    def compile_ahead(self, tokens: int, rows: int, *, use_tqdm: bool) -> int:
        return tokens + rows + use_tqdm


class Server:
    """A server of one runner, called in this thread."""

    def __init__(self) -> None:
        self.runner = Runner()
        self.answers: list[tuple[Answer, Any]] = []
        self.server = RunnerServer(self._take)
        self.server.runners = [self.runner]  # type: ignore[list-item]
        self._number = 0

    def _take(self, parts: list[bytes]) -> None:
        header, body = map(pickle.loads, parts)
        self.answers.append((Answer(*header), body))

    def call(self, method: str, *given: Any, waits: bool = True, dropped: Any = (), **named: Any):
        self._number += 1
        call = Call(self._number, 0, method, waits, list(dropped))
        self.server.do(call, message((), (given, named))[1])
        assert self.server.current is None
        return self._number


def test_behind_a_failed_call_nothing_is_carried_out_until_the_runner_recovers() -> None:
    one = Server()
    one.runner.error = KeyError("a request")
    first = one.call("launch", NOTHING, waits=False)
    one.call("launch", NOTHING, waits=False)
    third = one.call("host_room", [])
    assert one.runner.said == ["launch"]
    assert [answer for answer, _ in one.answers] == [Answer(first, True), Answer(third, True)]
    assert all(isinstance(error, KeyError) for _, error in one.answers)
    assert "in launch" in one.answers[0][1].__notes__[0]
    fourth = one.call("recover")
    fifth = one.call("host_room", [1, 2, 3])
    assert one.answers[2:] == [(Answer(fourth, False), None), (Answer(fifth, False), False)]


def test_tickets_are_kept_until_the_driver_has_forgotten_them() -> None:
    one = Server()
    first = one.call("launch", NOTHING, waits=False)
    assert one.answers == []
    for _ in range(2):
        one.call("collect", first)
    one.call("collect", first, dropped=[first])
    assert [body for _, body in one.answers[:2]] == [[1], [1]]
    answer, error = one.answers[2]
    assert answer.failed and isinstance(error, KeyError)


def test_a_call_is_known_while_it_runs() -> None:
    one, seen = Server(), dict[str, int]()
    for method in ("host_room", "compile_ahead"):
        run = getattr(one.runner, method)

        def noted(*given: Any, method: str = method, run: Any = run, **named: Any) -> Any:
            assert one.server.current is not None and one.server.current.method == method
            seen[method] = one.server.current.number
            return run(*given, **named)

        setattr(one.runner, method, noted)
    number = one.call("host_room", [])
    second = one.call("compile_ahead", 2, 3, use_tqdm=True)
    assert one.answers[1][1] == 6
    assert seen == {"host_room": number, "compile_ahead": second}


def test_errors_keep_their_types_or_are_those_of_a_step() -> None:
    class Local(Exception):
        pass

    assert isinstance(picklable_error(OutOfMemoryError("full")), OutOfMemoryError)
    found = picklable_error(Local("odd"))
    assert isinstance(found, StepFailedError) and "odd" in str(found)
    one = Server()
    one.runner.error = MemoryError("of NumPy")
    one.call("launch", NOTHING, waits=False)
    assert isinstance(one.answers[0][1], OutOfMemoryError)


def test_who_stopped_waiting_gets_no_answer_of_before() -> None:
    with in_servers() as in_server:
        remote = in_server(Runner())
        remote.client._post(0, "host_room", True, ([1, 2, 3],), {})  # and Ctrl-C
        assert remote.host_room([1]) is True
        assert remote.host_room([1, 2, 3]) is False


def test_an_error_of_before_is_not_raised_behind_recover() -> None:
    with in_servers() as in_server:
        runner = Runner()
        remote = in_server(runner)
        runner.error = ArithmeticError("no luck")
        with pytest.raises(ArithmeticError, match="no luck"):
            remote.launch(NOTHING)
        remote.recover()
        runner.error = ArithmeticError("none again")
        remote.client.post(0, "launch", NOTHING)
        remote.recover()
        assert remote.host_room([]) is True
        assert runner.said.count("recover") == 2


@contextmanager
def beating(monkeypatch: pytest.MonkeyPatch, busy: Callable[[], bool]) -> Iterator[Any]:
    """A server and its beats, as a thread sends them; `busy`: whether the process does anything."""
    monkeypatch.setattr(runner_process, "BEAT_S", 0.01)
    monkeypatch.setattr(ThreadActivity, "is_active", lambda self, seconds: busy())
    beats: list[Heartbeat] = []
    reports: Any = SimpleNamespace(closed=threading.Event(), send=beats.append)
    server: Any = SimpleNamespace(current=None)
    thread = threading.Thread(target=runner_process._beat, args=(reports, server))
    thread.start()
    try:
        yield server, beats
    finally:
        reports.closed.set()
        thread.join()


def call(method: str) -> Call:
    return Call(5, 0, method, True, [])


def test_the_time_in_which_it_compiles_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    with beating(monkeypatch, lambda: False) as (server, beats):
        until(lambda: beats)
        assert beats[-1] == Heartbeat(None, None)
        server.current = call("launch")
        until(lambda: (beats[-1].still or 0) > 0.05)
        assert not any(beat.seconds for beat in beats)  # it waits, as for a process that compiles
        with compiling(runner_process.logging.getLogger("jax_engine"), "a step"):
            first = len(beats) + 2  # a beat may be on its way
            until(lambda: len(beats) > first + 5)
            assert not any(beat.seconds or beat.still for beat in beats[first:])
        until(lambda: beats[-1].still)
        server.current = None
        until(lambda: beats[-1] == Heartbeat(None, None))


def test_a_call_that_computes_is_not_still(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = True
    with beating(monkeypatch, lambda: busy) as (server, beats):
        server.current = call("collect")
        until(lambda: (beats[-1].seconds or 0) > 0.05 if beats else None)
        assert not any(beat.still for beat in beats)
        busy = False
        until(lambda: (beats[-1].still or 0) > 0.05)
        busy = True
        until(lambda: not beats[-1].still)


def test_calls_that_are_no_steps_may_run_as_long_as_they_compute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with beating(monkeypatch, lambda: False) as (server, beats):
        server.current = call("compile_ahead")
        until(lambda: beats and (beats[-1].still or 0) > 0.05)
        assert all(beat.seconds is None for beat in beats)


def test_a_process_that_waits_does_nothing_and_one_that_computes_does() -> None:
    """Whichever of its threads computes, but not the one that asks."""
    ended = threading.Event()
    work, thread = ThreadActivity(), threading.Thread(target=spin, args=(ended,))
    assert until(lambda: not work.is_active(waited()))
    thread.start()
    try:
        assert until(lambda: work.is_active(waited()))
    finally:
        ended.set()
        thread.join()


def waited() -> float:
    """Waits, and says for how many seconds."""
    time.sleep(0.1)
    return 0.1


def spin(ended: threading.Event) -> None:
    while not ended.is_set():
        pass
