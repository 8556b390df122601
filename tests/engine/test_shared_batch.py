"""Calls that share an engine: names of requests, progress, and what an interrupt leaves behind."""

import signal
from typing import Any

import pytest

from jax_engine import SamplingParams
from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.mailbox import Mailbox
from jax_engine.engine.shared_batch import SharedBatch
from jax_engine.errors import ForkedProcessError, StepFailedError
from tests.support.engine_driver import check_idle
from tests.support.small_engine import run, small_engine

GREEDY = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True)


class Bar:
    """What a call makes of its bar."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.updates = 0

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, count: int) -> None:
        self.updates += count


def add(batch: SharedBatch, engine: LLMEngine, box: Mailbox, count: int) -> list[str]:
    checked = [engine.check_request([0], GREEDY) for _ in range(count)]
    return batch.add(checked, [0] * count, [None] * count, box)


def test_ids_are_the_next_that_nobody_has() -> None:
    engine = small_engine()
    batch, box = SharedBatch(engine), Mailbox()
    engine.add_request("1", [0], GREEDY)
    assert add(batch, engine, box, 1) == ["0"]
    assert add(batch, engine, box, 2) == ["2", "3"]
    outputs = batch.wait(box, use_tqdm=False)
    assert [one.request_id for one in outputs] == ["0", "2", "3"]
    run(engine)
    check_idle(engine)
    assert add(batch, engine, Mailbox(), 1) == ["4"], "no id comes twice"


def test_the_bar_is_that_of_the_call() -> None:
    """Others' requests do not count, though they run beside."""
    engine = small_engine()
    batch, box, others, bars = SharedBatch(engine), Mailbox(), Mailbox(), list[Bar]()
    add(batch, engine, others, 2)
    add(batch, engine, box, 3)
    batch.wait(box, use_tqdm=lambda **options: bars.append(Bar(**options)) or bars[0])
    (bar,) = bars
    assert (bar.options["total"], bar.updates) == (3, 3)
    assert len(batch.wait(others, use_tqdm=False)) == 2


@pytest.mark.parametrize("accepted", [False, True])
def test_an_interrupt_while_requests_are_added(
    monkeypatch: pytest.MonkeyPatch, accepted: bool
) -> None:
    """None is left, whether it came before they were accepted or behind; ids do not come twice."""
    engine = small_engine()
    batch, box = SharedBatch(engine), Mailbox()
    add_all = engine.add_all

    def interrupted(*args: Any) -> None:
        if accepted:
            add_all(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "add_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        add(batch, engine, box, 2)
    assert not box.request_ids and not box.missing
    check_idle(engine)
    monkeypatch.undo()
    assert add(batch, engine, box, 1) == ["2" if accepted else "0"]
    (output,) = batch.wait(box, use_tqdm=False)
    assert output.finished and output.request_id == box.request_ids[0]


def test_ctrl_c_ends_a_call_and_another_one_while_it_cleans_up_does_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its requests are aborted, and the call that waits goes on."""
    engine = small_engine()
    batch, box, others = SharedBatch(engine), Mailbox(), Mailbox()
    worker: Any = engine.worker
    launch, leave, woken = worker.launch, batch._leave, list[int]()

    def pressed(*args: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return launch(*args)

    def left(mailbox: Mailbox) -> None:
        signal.raise_signal(signal.SIGINT)
        leave(mailbox)

    add(batch, engine, box, 2)
    add(batch, engine, others, 1)
    batch._calls[others] = None  # as the call does, when it begins to wait
    monkeypatch.setattr(others, "wake", lambda: woken.append(1))
    monkeypatch.setattr(worker, "launch", pressed)
    monkeypatch.setattr(batch, "_leave", left)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            batch.wait(box, use_tqdm=False)
    finally:
        signal.signal(signal.SIGINT, handler)
    monkeypatch.undo()
    assert woken == [1] and batch._stepper is others
    assert not engine.is_running(box.request_ids) and engine.is_running(others.request_ids)
    assert batch.wait(others, use_tqdm=False)[0].finished
    check_idle(engine)


def timed(batch: SharedBatch, engine: LLMEngine, box: Mailbox, timeouts: list[Any]) -> None:
    checked = [engine.check_request([0], GREEDY) for _ in timeouts]
    batch.add(checked, [0] * len(timeouts), timeouts, box)


def test_a_step_that_only_others_needed_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    """This call's requests had run out of time before it began; the others are told."""
    engine = small_engine()
    batch, box, others = SharedBatch(engine), Mailbox(), Mailbox()
    worker: Any = engine.worker
    engine.clock = lambda: 0.0
    timed(batch, engine, box, [1.0, 2.0])
    timed(batch, engine, others, [None])
    engine.clock = lambda: 5.0
    worker.fail_at = "launch"
    outputs: list[Any] = batch.wait(box, use_tqdm=False)
    assert [one.outputs[0].stop_reason for one in outputs] == ["timeout"] * 2
    assert "only other calls needed: DeviceError('injected at launch')" in caplog.text
    with pytest.raises(StepFailedError, match="injected at launch"):
        batch.wait(others, use_tqdm=False)
    check_idle(engine)


def test_a_step_that_fails_is_the_call_s_own_error() -> None:
    """Also if some of its requests have ended; and if it failed before it told anybody."""
    engine = small_engine()
    batch, box, third = SharedBatch(engine), Mailbox(), Mailbox()
    worker: Any = engine.worker
    engine.clock = lambda: 0.0
    timed(batch, engine, box, [1.0, None])
    engine.clock = lambda: 5.0
    worker.fail_at = "collect"
    with pytest.raises(worker.Error):
        batch.wait(box, use_tqdm=False)
    check_idle(engine)
    add(batch, engine, third, 1)
    engine.lock._pid += 1  # a fork
    with pytest.raises(ForkedProcessError):
        batch._serve(third)


def test_requests_that_are_gone_from_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may have aborted them all; if their ends are nowhere, nobody waits for ever."""
    engine = small_engine()
    batch, box, lost = SharedBatch(engine), Mailbox(), Mailbox()
    ids = add(batch, engine, box, 2)
    serve = engine.serve

    def aborted() -> bool:
        engine.abort_request(ids)
        return serve()

    monkeypatch.setattr(engine, "serve", aborted)
    outputs: list[Any] = batch.wait(box, use_tqdm=False)
    assert [one.outputs[0].finish_reason for one in outputs] == ["abort"] * 2
    lost.expect(["never added"])
    with pytest.raises(StepFailedError, match=r"requests \['never added'\] are not in the engine"):
        batch.wait(lost, use_tqdm=False)
