"""The loop without a thread: what it keeps for `step`, and who is told what."""

import gc
import weakref
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ClassVar

import pytest

from jax_engine import EngineDeadError, LLMEngine, SamplingParams, StepFailedError
from jax_engine.engine.calls import Call, Calls, check_all
from jax_engine.engine.engine_loop import EngineLoop, _Answer, _Job, awaited
from jax_engine.sampling_params import RequestOutputKind
from tests.support.builders import small_engine
from tests.support.in_process import check_idle, run

LONG = SamplingParams(
    temperature=0.0, max_tokens=30, ignore_eos=True, output_kind=RequestOutputKind.FINAL_ONLY
)


def asked(engine: LLMEngine, *names: str, params: SamplingParams = LONG) -> list[Any]:
    requests = check_all(engine, [[0]] * len(names), [params] * len(names),
                         [0] * len(names), [None] * len(names))  # fmt: skip
    for request, name in zip(requests, names, strict=True):
        request.group.request_id = name
    return requests


def test_an_aborted_request_has_what_was_kept_for_step() -> None:
    """It ran beside a call, so nobody has read it; and none of that comes again."""
    engine = small_engine()
    loop = EngineLoop(engine)
    grows = SamplingParams(**vars(LONG) | {"output_kind": RequestOutputKind.CUMULATIVE})
    engine.add_request("mine", [0], grows)
    engine.add_request("other", [0], grows)
    loop.add(asked(engine, "call's"), Call())
    for _ in range(4):
        loop.turn()
    [aborted] = engine.abort_request("mine")
    tokens = aborted.outputs[0].token_ids
    assert aborted.finished and len(tokens) >= 3
    [*_, last] = others = engine.outputs()
    assert {one.request_id for one in others} == {"other"}
    assert last.outputs[0].token_ids == tokens
    loop.abort(["call's"])
    run(engine)
    check_idle(engine)


def test_a_request_that_was_aborted_without_the_loop() -> None:
    """A logits processor may abort it. Its own call is told, and another one is not."""
    engine = small_engine()
    loop, calls = EngineLoop(engine), [Call(), Call()]
    for name, call in zip(("lost", "other"), calls, strict=True):
        loop.add(asked(engine, name), call)
        call.request_ids = [name]
    engine.abort_request("lost")
    while loop.is_busy:
        loop.turn()
    with pytest.raises(StepFailedError, match="request lost was aborted through llm_engine"):
        calls[0].next()
    assert calls[1].last_outputs(lambda _: None)[0].outputs[0].finish_reason == "length"
    check_idle(engine)


def test_a_reader_gets_all_outputs_of_a_stream() -> None:
    engine = small_engine()
    loop, call = EngineLoop(engine), Call()
    deltas = SamplingParams(**vars(LONG) | {"output_kind": RequestOutputKind.DELTA})
    loop.add(asked(engine, "mine", params=deltas), call)
    while loop.is_busy:
        loop.turn()
    outputs: list[Any] = []
    while not call._updates.empty():
        outputs.append(call.next())
    assert sum(len(one.outputs[0].token_ids) for one in outputs) == 30
    assert [one.finished for one in outputs] == [False] * (len(outputs) - 1) + [True]
    assert engine.outputs() == []
    check_idle(engine)


def test_an_error_of_a_job_does_not_keep_what_was_done() -> None:
    """Who asked keeps the error and its traceback; the job may hold an engine."""

    class Held:
        """No number."""

    held, answer = Held(), SimpleQueue[_Answer]()
    gone, job = weakref.ref(held), _Job(partial(int, held), answer)
    job.do()
    error = answer.get().error
    del held, job
    assert isinstance(error, TypeError) and gone() is None


@pytest.mark.slow
def test_an_error_of_a_call_does_not_keep_the_engine() -> None:
    """Its traceback holds the frames that it passed, and no frame may hold the error."""
    engine = small_engine()
    calls, worker, gone = Calls(engine), engine.worker, weakref.ref(engine)
    worker.fail_at = "launch"  # type: ignore[attr-defined]
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(StepFailedError):
            calls.run(asked(engine, "new"), use_tqdm=False)
        del calls, engine, worker
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("waits", [False, True])
def test_what_is_enqueued_and_interrupted_ends(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """Wherever Ctrl-C comes while the loop is asked: nobody waits for these requests later."""
    engine = small_engine()
    calls = Calls(engine)
    if waits:
        calls.enqueue(asked(engine, "new"))
    call = calls._loops[0].call

    def interrupted(work: Any) -> Any:
        monkeypatch.undo()
        call(work)
        raise KeyboardInterrupt

    monkeypatch.setattr(calls._loops[0], "call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        if waits:
            calls.wait_enqueued(False)
        else:
            calls.enqueue(asked(engine, "new"))
    check_idle(engine)
    assert calls.wait_enqueued(False) == []


def test_several_threads_may_refuse_jobs_at_once() -> None:
    """The inbox may be emptied by another one, after this one saw a job there."""
    engine = small_engine()
    loop = EngineLoop(engine)
    loop.stop()
    loop.run()

    class Inbox:
        """The inbox as it looks to a thread that comes second."""

        def put(self, job: Any) -> None:
            job.answer.put(job_refused)

        def empty(self) -> bool:
            return False

        def get_nowait(self) -> Any:
            raise Empty

    job_refused = _Answer(error=EngineDeadError("refused by another thread"))
    loop._inbox = Inbox()  # type: ignore[assignment]
    with pytest.raises(EngineDeadError, match="another thread"):
        loop.call(lambda: None)


def test_who_waits_looks_for_signals_now_and_then() -> None:
    """One that comes in the moment before a wait would be seen behind it, minutes later."""

    class Late:
        """A queue that is empty twice; Python runs a signal's handler between two calls."""

        waits: ClassVar[list[float]] = []

        def get(self, timeout: float) -> str:
            self.waits.append(timeout)
            if len(self.waits) < 3:
                raise Empty
            return "it"

    late: Any = Late()
    assert awaited(late) == "it"
    assert len(late.waits) == 3 and all(0 < one < 1 for one in late.waits)
