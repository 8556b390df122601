"""What is timed, how often and with which clock: on a worker that only notes what it is asked."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from jax_engine.sampling.sampling_inputs import ROW_WIDTH
from jax_engine.step import Moves, PreemptionCosts, Step
from jax_engine.worker import preemption_costs
from jax_engine.worker.preemption_costs import measure_costs, seconds_per_block, seconds_per_token
from jax_engine.worker.step_shape import StepShape, step_shape

TABLE_WIDTH = 5


class Noting:
    """Worker, cache, host blocks and steps in one: `done` is what was done, in order.

    Args:
        took: Seconds that each timed thing takes.
    """

    def __init__(
        self, took: list[float], *, blocks: int = 9, host: int = 9, shapes: tuple[Any, ...] = ()
    ) -> None:
        self.done: list[Any] = []
        self.prompts: list[int] = []
        self.shape = (2, 2, blocks, 2, 4, 8)
        self.capabilities = SimpleNamespace(table_width=TABLE_WIDTH)
        self.host = Host(self, host)
        self.shapes, self.has_room = list(shapes), True
        self._now, self._took = 100.0, iter(took)

    def clock(self) -> float:
        """Time passes between two looks at it, of which the second ends what is timed."""
        self.done.append("clock")
        if self.done.count("clock") % 2 == 0:
            self._now += next(self._took)
        return self._now

    @property
    def array(self) -> str:
        return "array"

    def swap_out(self, pairs: Any) -> None:
        self.done.append(("out", pairs))

    def swap_in(self, pairs: Any) -> None:
        self.done.append(("in", pairs))

    def read(self, block: int) -> str:
        self.done.append(("read", block))
        return "held"

    def write(self, block: int, data: str) -> None:
        self.done.append(("write", block, data))

    def compiled_shapes(self) -> list[StepShape]:
        return self.shapes

    def has(self, shape: StepShape) -> bool:
        return shape in self.shapes

    def launch(self, step: Step) -> Step:
        (row,), (setup,) = step.rows, step.opened
        size = len(row.tokens)
        self.prompts.append(size)
        assert row.start == len(step.samples) == 0 and row.request == setup.number == -1
        assert row.tokens == setup.prompt_token_ids == [0] * size
        assert step.moves == Moves([], [], []) and step.closed == [-1]
        assert step.block_tables.shape == (1, TABLE_WIDTH) and not step.block_tables.any()
        assert setup.rows.shape == (1, ROW_WIDTH) and not setup.rows.any()
        assert setup.bias.shape == setup.forbidden.shape == (2, 0)
        self.done.append("launch")
        return step

    def collect(self, ticket: Any) -> None:
        assert isinstance(ticket, Step)
        self.done.append("collect")


class Host:
    def __init__(self, noting: Noting, size: int) -> None:
        self._noting, self._size = noting, size

    def __len__(self) -> int:
        return self._size

    def make_room(self, blocks: list[int]) -> bool:
        self._noting.done.append(("room", blocks))
        return self._noting.has_room

    def read(self, blocks: list[int]) -> str:
        self._noting.done.append(("host read", blocks))
        return "theirs"

    def write(self, blocks: list[int], data: str) -> None:
        self._noting.done.append(("host write", blocks, data))


@pytest.fixture
def new(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a worker that also notes when its cache is waited for."""

    def make(took: list[float], **options: Any) -> Noting:
        noting = Noting(took, **options)
        wait = partial(noting.done.append, "wait")
        monkeypatch.setattr(preemption_costs.jax, "block_until_ready", lambda array: wait())
        return noting

    return make


def per_token(worker: Any, max_model_len: int) -> float:
    return seconds_per_token(worker, worker, worker, max_model_len, worker.clock)


@pytest.mark.parametrize(
    ("blocks", "host", "count"), [(9, 9, 8), (9, 8, 8), (3, 9, 3), (9, 1, 1), (20, 20, 8)]
)
def test_blocks_are_moved_out_and_in(blocks: int, host: int, count: int, new: Any) -> None:
    """Once without a look at the clock; what the host held is put back."""
    worker = new([5.0, 3.0, 4.0], blocks=blocks, host=host)
    assert seconds_per_block(worker, worker.clock) == pytest.approx(3.0 / (2 * count))
    every = list(range(count))
    both = [(i, i) for i in every]
    moved = [("out", both), ("in", both), "wait"]
    start = [("room", every), ("host read", every), "wait"]
    rounds = ["clock", *moved, "clock"] * 3
    assert worker.done == [*start, *moved, *rounds, ("host write", every, "theirs")]


def test_without_room_on_the_host_a_move_is_never_worth_it(new: Any) -> None:
    worker = new([])
    worker.has_room = False
    assert seconds_per_block(worker, worker.clock) == float("inf")
    assert worker.done == [("room", list(range(8)))]


def test_prompts_are_timed_from_small_to_large(new: Any) -> None:
    """Twice each, until one takes longer than it must; block 0 is then what it was."""
    shapes = tuple(step_shape(n, 1, 1) for n in (512, 1, 64, 32, 128))
    worker = new([0.04, 0.032, 0.05, 0.06, 0.06, 0.07, 0.0, 0.0], shapes=shapes)
    # of 32, 64 and 128 tokens; 64 took 0.05 s, which is not longer
    assert per_token(worker, 1000) == pytest.approx(0.06 / 128)
    assert worker.prompts == [32, 32, 64, 64, 128, 128]
    one = ["clock", "launch", "collect", "wait", "clock"]
    assert worker.done == [("read", 0), *one * 6, ("write", 0, "held")]


def test_a_step_that_takes_just_enough_is_not_long_enough(
    new: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preemption_costs, "ENOUGH_S", 0.5)
    shapes = tuple(step_shape(n, 1, 1) for n in (32, 64, 128))
    worker = new([0.5, 0.5, 0.75, 0.75], shapes=shapes)
    assert per_token(worker, 1000) == 0.75 / 64
    assert worker.prompts == [32, 32, 64, 64]


def test_the_least_for_a_token_counts(new: Any) -> None:
    shapes = tuple(step_shape(n, 1, 1) for n in (32, 64))
    worker = new([0.01, 0.008, 0.03, 0.04], shapes=shapes)
    assert per_token(worker, 1000) == pytest.approx(0.008 / 32)


def test_only_steps_that_are_compiled_are_timed(new: Any) -> None:
    """A prompt of so many tokens must run in one of them; else one short prompt is compiled for."""
    odd = StepShape(64, 8)  # no prompt of 64 tokens runs in it
    worker = new([0.0] * 4, shapes=(step_shape(32, 1, 1), odd))
    per_token(worker, 1000)
    assert worker.prompts == [32, 32]
    for max_model_len, size in [(1000, 32), (20, 20)]:
        worker = new([0.0] * 4, shapes=(odd, step_shape(1, 1, 1)))
        per_token(worker, max_model_len)
        assert worker.prompts == [size, size]
    worker = new([0.0] * 4, shapes=(step_shape(32, 1, 1), step_shape(64, 1, 1)))
    per_token(worker, 40)
    assert worker.prompts == [32, 32, 40, 40]
    worker = new([0.0] * 4, shapes=(step_shape(2, 1, 1),))
    per_token(worker, 2)
    assert worker.prompts == [2, 2]


def test_costs_are_measured_with_one_clock(new: Any) -> None:
    worker = new([8.0, 8.0, 8.0, 0.32, 0.32])
    found = measure_costs(worker, worker, worker, 40, worker.clock)
    assert found == PreemptionCosts(pytest.approx(0.5), pytest.approx(0.01))
