"""Which steps are compiled ahead, in which order; a failure ends it."""

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from jax_engine.sampling.sampling_inputs import USUAL
from jax_engine.worker import compiled_steps
from jax_engine.worker.compiled_steps import compile_ahead
from jax_engine.worker.step_shape import StepShape
from tests.support.patience import HANG_S

VOCABULARY = 40
SHAPES = [StepShape(1, 1), StepShape(32, 16), StepShape(64, 8), StepShape(64, 32), StepShape(2, 2)]


class Bar:
    """A double of the progress bar."""

    made: Any = None

    def __init__(self, **options: Any) -> None:
        self.options, self.updates = options, list[int]()
        Bar.made = self

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, count: int) -> None:
        self.updates.append(count)


def steps(
    done: list[Any],
    has: list[StepShape],
    fails: StepShape | None = None,
    noticed: threading.Event | None = None,
) -> Any:
    """The compiled steps and the cache, in one."""

    def prepare(shape: StepShape, cache: Any) -> None:
        assert cache == "array"
        if fails in done:
            assert noticed is not None and noticed.wait(HANG_S)
            time.sleep(0.01)  # while the rest is cancelled
        done.append(shape)
        if shape == fails:
            raise RuntimeError("no memory")

    return SimpleNamespace(
        has=has.__contains__, prepare_silently=prepare, array="array",
        warm_up=lambda: done.append("moves"), sample=None,
    )  # fmt: skip


def compile_all(one: Any, shapes: list[StepShape] = SHAPES, *, use_tqdm: bool = True) -> int:
    return compile_ahead(one, one, VOCABULARY, shapes, use_tqdm=use_tqdm, threads=1)


@pytest.fixture(autouse=True)
def bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_steps, "tqdm", Bar)


@pytest.mark.parametrize("use_tqdm", [False, True])
def test_what_is_not_there_is_compiled_the_longest_first(use_tqdm: bool) -> None:
    done: list[Any] = []
    assert compile_all(steps(done, [SHAPES[4]]), use_tqdm=use_tqdm) == 4
    assert done == ["moves", SHAPES[3], SHAPES[2], SHAPES[1], SHAPES[0]]
    assert Bar.made.updates == [1] * 4
    assert Bar.made.options["total"] == 4 and Bar.made.options["disable"] is not use_tqdm


def test_a_failure_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once: what has not begun is not compiled."""
    done, noticed = list[Any](), threading.Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, *args: Any, **kwargs: Any) -> None:
            noticed.set()
            super().shutdown(*args, **kwargs)

    monkeypatch.setattr(compiled_steps, "ThreadPoolExecutor", Pool)
    many = [*SHAPES, *(StepShape(1, 1, n) for n in range(1, 99))]
    with pytest.raises(RuntimeError, match="no memory"):
        compile_all(steps(done, [], fails=SHAPES[3], noticed=noticed), many)
    assert done[:2] == ["moves", SHAPES[3]] and not Bar.made.updates
    assert len(done) < 50


@pytest.mark.parametrize(
    "seconds", [0, compiled_steps.LONG_S - 0.25, compiled_steps.LONG_S, compiled_steps.LONG_S + 2]
)
def test_what_takes_long_is_logged(
    seconds: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    times = iter([64.0, 64.0 + seconds])
    monkeypatch.setattr(compiled_steps.time, "perf_counter", lambda: next(times))
    caplog.set_level(logging.INFO)
    compile_all(steps([], [SHAPES[4]]))
    said = f"4 steps compiled ahead in {seconds:.1f} s"
    assert caplog.messages == ([said] if seconds >= compiled_steps.LONG_S else [])


def test_samplers_that_are_programs_of_their_own_are_compiled_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One for each number of rows and what most requests ask for, the largest first."""
    device = SimpleNamespace(branches_wait=True)
    monkeypatch.setattr(compiled_steps, "this_device", lambda: device)
    prepared: list[Any] = []
    one = steps([], [])
    one.sample = SimpleNamespace(prepare=lambda *asked: prepared.append(asked))
    compile_all(one)
    assert prepared == [(rows, VOCABULARY, asks) for rows in (32, 16, 8, 2, 1) for asks in USUAL]
    device.branches_wait = False
    compile_all(one)
    device.branches_wait = True
    one.has = SHAPES.__contains__  # as where nothing is compiled
    assert compile_all(one) == 0
    assert len(prepared) == 5 * len(USUAL)
