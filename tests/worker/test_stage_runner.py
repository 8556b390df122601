"""The runner of a stage: steps in their order on a thread, and failures until all recover."""

from collections.abc import Callable
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jax_engine.errors import StepFailedError
from jax_engine.step import Capabilities, Moves, PreemptionCosts, Row, Samples, Step, StepResult
from jax_engine.worker.stage_runner import StageRunner
from tests.support.patience import HANG_S, until

KNOWN = Capabilities(7, 4, 10, 10, 3, 64, accepts_guesses=True)


class FakeWorker:
    """Notes what it is asked; hands on twice what it was handed."""

    capabilities = KNOWN

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.fails: Exception | None = None

    def launch(self, step: Step, stream: Any = None) -> Any:
        if self.fails is not None:
            error, self.fails = self.fails, None
            raise error
        given = None if stream is None else [float(one[0]) for one in stream]
        self.done.append(("launch", len(step.rows), given))
        value = 1.0 if stream is None else 2 * stream[0][0]
        ticket = SimpleNamespace(output=SimpleNamespace(stream=(np.full(1, value),)), tokens=[])
        ticket.tokens += [] if step.masked else [int(value)]
        return ticket

    def sample(self, ticket: Any, allowed: Any, processed: Any) -> None:
        self.done.append(("sample", allowed, processed))
        ticket.tokens.append(5)

    def logits(self, ticket: Any) -> np.ndarray:
        return np.zeros((1, 7), np.float32)

    def collect(self, ticket: Any) -> StepResult:
        assert ticket.tokens, "not sampled"
        return StepResult(ticket.tokens)

    def recover(self) -> None:
        self.done.append("recover")

    def host_room(self, blocks: list[int]) -> bool:
        return len(blocks) < 3

    def measure_costs(self) -> PreemptionCosts:
        return PreemptionCosts(1.0, 2.0)

    def compile_ahead(self, *limits: int, use_tqdm: bool) -> int:
        self.done.append(("bar", use_tqdm))
        return sum(limits)


class FakeLink:
    def __init__(self, *, has_before: bool, has_after: bool) -> None:
        self.has_before, self.has_after = has_before, has_after
        self.sent: list[Any] = []
        self.come: SimpleQueue[Any] = SimpleQueue()
        self.awaited: list[Any] = []

    def send(self, tag: Any, arrays: Any) -> None:
        self.sent.append((tag, [float(one[0]) for one in arrays]))

    def receive(self, tag: Any) -> Any:
        self.awaited.append(tag)
        found = self.come.get(timeout=HANG_S)
        if isinstance(found, Exception):
            raise found
        return [np.full(1, found)]


def made(*, has_before: bool, has_after: bool) -> tuple[StageRunner, FakeWorker, FakeLink]:
    worker, link = FakeWorker(), FakeLink(has_before=has_before, has_after=has_after)
    return StageRunner(worker, link, 3), worker, link  # type: ignore[arg-type]


def step(rows: int = 1, *, masked: bool = False) -> Step:
    one = Row(0, 0, 0, [1])
    tables = np.zeros((rows, 3), np.int32)
    return Step([one] * rows, Samples([], []), tables, Moves([], [], []), [], [], masked)


def test_the_first_stage_hands_on_each_step_with_its_number() -> None:
    runner, worker, link = made(has_before=False, has_after=True)
    tickets = [runner.launch(step()) for _ in range(2)]
    runner.launch(step(0))  # it moves blocks, and hands on nothing
    tickets.append(runner.launch(step(2)))
    for ticket in tickets:
        runner.collect(ticket)
    assert link.sent == [((0, number), [1.0]) for number in (1, 2, 3)]
    assert [rows for _, rows, _ in worker.done] == [1, 1, 0, 2]
    assert runner.logits(tickets[0]).shape == (0, 7)
    masked = runner.launch(step(masked=True))
    runner.sample(masked, None, None)
    assert ("sample", None, None) not in worker.done, "tokens are drawn in the last stage"


def test_results_come_while_the_next_step_waits() -> None:
    """The thread waits for the second step; what the first one gave can be had."""
    runner, _, link = made(has_before=True, has_after=False)
    first, second = runner.launch(step()), runner.launch(step())
    link.come.put(3.0)
    assert runner.collect(first).token_ids == [6]
    until(lambda: len(link.awaited) == 2, "the wait for the second step")
    assert not second.launched.done()
    link.come.put(4.0)
    assert runner.collect(second).token_ids == [8] and not link.sent
    assert link.awaited == [(0, 1), (0, 2)]


def test_a_masked_step_is_collected_behind_its_draw() -> None:
    runner, worker, link = made(has_before=True, has_after=False)
    ticket = runner.launch(step(masked=True))
    link.come.put(1.0)
    assert runner.logits(ticket).shape == (1, 7)
    allowed, processed = np.zeros((1, 1), np.uint32), np.zeros((1, 7), np.float32)
    runner.sample(ticket, allowed, processed)
    behind = runner.launch(step())
    assert runner.collect(ticket).token_ids == [5]
    assert ("sample", allowed, processed) == worker.done[1]
    link.come.put(1.0)
    assert runner.collect(behind).token_ids == [2]


@pytest.mark.parametrize("where", ["worker", "link"])
def test_after_a_failure_all_steps_fail_until_it_recovers(where: str) -> None:
    runner, worker, link = made(has_before=True, has_after=True)
    error = StepFailedError("no such luck")
    if where == "worker":
        worker.fails = error
        link.come.put(1.0)
    else:
        link.come.put(error)
    tickets = [runner.launch(step()) for _ in range(3)]
    asks: list[Callable[[], Any]] = [lambda one=one: runner.collect(one) for one in tickets]
    for ask in [*asks, runner.measure_costs]:
        with pytest.raises(StepFailedError, match="no such luck"):
            ask()
    assert not worker.done and len(link.awaited) == 1
    runner.recover()
    link.come.put(2.0)
    runner.collect(runner.launch(step()))
    assert link.awaited[-1] == (1, 1) and link.sent == [((1, 1), [4.0])]
    assert worker.done == ["recover", ("launch", 1, [2.0])]


def test_it_tells_how_many_steps_may_be_in_flight() -> None:
    runner, worker, _ = made(has_before=False, has_after=True)
    known = runner.capabilities
    assert (known.max_concurrent_batches, known.accepts_guesses) == (3, False)
    assert (known.vocab_size, known.num_blocks) == (7, 10)
    assert runner.host_room([1]) and not runner.host_room([1, 2, 3])
    assert runner.measure_costs() == worker.measure_costs()


@pytest.mark.parametrize("has_after", [True, False])
def test_the_last_stage_s_progress_is_shown_for_all(has_after: bool) -> None:
    runner, worker, _ = made(has_before=True, has_after=has_after)
    assert runner.compile_ahead(3, 4, use_tqdm=True) == 7
    assert runner.compile_ahead(3, 4, use_tqdm=False) == 7
    assert worker.done == [("bar", not has_after), ("bar", False)]
