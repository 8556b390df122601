"""Calls of `LLM` as clients of the loop: names, progress, failures, Ctrl-C, the end of all."""

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from jax_engine import (
    LLM,
    ConfigError,
    EngineDeadError,
    EngineInUseError,
    InvalidRequestError,
    LLMEngine,
    LoRARequest,
    OutOfMemoryError,
    SamplingParams,
    StepFailedError,
)
from jax_engine.engine.calls import (
    Call,
    Calls,
    check_all,
    check_jax_settings,
    jax_settings,
    loras_each,
)
from jax_engine.lora.adapter import Adapter
from jax_engine.sampling_params import RequestOutputKind
from tests.support.builders import small_engine
from tests.support.in_process import check_idle, run
from tests.support.patience import HANG_S, join, until
from tests.support.tiny_llama import tiny_llama

LAST = RequestOutputKind.FINAL_ONLY  # as `LLM` asks for
GREEDY = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True, output_kind=LAST)
LONG = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True, output_kind=LAST)
Requests = list[Any]
USES: list[Callable[[LLMEngine], Any]] = [
    LLMEngine.step, LLMEngine.stats, LLMEngine.state, LLMEngine.get_metrics, LLMEngine.outputs,
    LLMEngine.reset_prefix_cache, lambda engine: engine.abort_request("0"),
    lambda engine: engine.add_request("mine", [0], GREEDY),
]  # what one thread at a time may do  # fmt: skip


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


def asked(engine: LLMEngine, *params: Any, timeouts: list[float | None] | None = None) -> Requests:
    """A checked request for each of the params."""
    count = len(params)
    return check_all(engine, [[0]] * count, params, [0] * count, timeouts or [None] * count)


def stopped_at(engine: LLMEngine, calls: Calls) -> tuple[threading.Event, threading.Event]:
    """The next step waits: events that say that it began, and that let it go on."""
    worker: Any = engine.worker
    launch, began, go_on = worker.launch, threading.Event(), threading.Event()

    def held(step: Any) -> Any:
        began.set()
        assert go_on.wait(HANG_S)
        return launch(step)

    calls.of_each(lambda _: setattr(worker, "launch", held))
    return began, go_on


@contextmanager
def ctrl_c_as_usual() -> Iterator[None]:
    """Python's own handler, also where whoever started the tests had Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def in_thread(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """A thread that has begun, and the list of what the call returned or raised."""
    found: list[Any] = []

    def run_it() -> None:
        try:
            found.append(call())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run_it, daemon=True)
    thread.start()
    return thread, found


def test_ids_are_the_next_that_nobody_has() -> None:
    engine = small_engine()
    calls = Calls(engine)
    engine.add_request("1", [0], LONG)
    names: list[list[str]] = []
    for count in (1, 2):
        outputs = calls.run(asked(engine, *[GREEDY] * count), use_tqdm=False)
        names.append([one.request_id for one in outputs])
    assert names == [["0"], ["2", "3"]]
    assert [one.request_id for one in run(engine)][-1] == "1", "its outputs are for `step`"
    check_idle(engine)
    assert calls.enqueue(asked(engine, GREEDY)) == ["4"], "no id comes twice"
    assert [one.request_id for one in calls.wait_enqueued(False)] == ["4"]


def test_what_came_before_a_call_is_for_step() -> None:
    """That holds even if it has the name that the call's request gets."""
    engine = small_engine()
    calls = Calls(engine)
    deltas = SamplingParams(**vars(GREEDY) | {"output_kind": RequestOutputKind.DELTA})
    engine.add_request("0", [0], deltas)
    engine.step()
    engine.abort_request("0")  # its end is for the next `step`
    [output] = calls.run(asked(engine, GREEDY), use_tqdm=False)
    assert (output.request_id, len(output.outputs[0].token_ids)) == ("0", 3)
    assert engine.has_unfinished_requests()
    [end] = engine.step()
    assert end.outputs[0].finish_reason == "abort"
    check_idle(engine)


def test_the_bar_is_that_of_the_call() -> None:
    """Others' requests do not count, though they run beside."""
    engine, bars = small_engine(), list[Bar]()
    calls = Calls(engine)
    calls.enqueue(asked(engine, GREEDY, GREEDY))
    calls.run(
        asked(engine, *[GREEDY] * 3), lambda **options: bars.append(Bar(**options)) or bars[0]
    )
    (bar,) = bars
    assert (bar.options["total"], bar.updates) == (3, 3)
    assert len(calls.wait_enqueued(False)) == 2


def test_settings_of_jax_are_compared_by_name() -> None:
    given = jax_settings()
    check_jax_settings(given)
    with jax.disable_jit(), pytest.raises(ConfigError, match="jax_disable_jit is False in the"):
        check_jax_settings(given)


def test_an_adapter_of_arrays_is_made_once_and_one_in_a_folder_is_left() -> None:
    arrays = LoRARequest("arrays", 1, lora_tensors={"a": np.zeros(1)}, peft_config={"r": 1})
    folder = LoRARequest("folder", 2, "somewhere")
    read, adapter = [], Adapter.__new__(Adapter)
    engine: Any = SimpleNamespace(read_lora=lambda one: read.append(one) or adapter)
    found: list[Any] = loras_each(engine, [folder, arrays, None, arrays], 4)
    assert found[0] is folder and found[2] is None and read == [arrays]
    assert found[1] is found[3] and found[1].adapter is adapter
    assert found[1].lora_tensors is None and found[1].peft_config is None


def test_a_call_without_prompts() -> None:
    engine = small_engine()
    assert Calls(engine).run([], use_tqdm=False) == []
    check_idle(engine)


@pytest.mark.parametrize("place", ["launch", "collect"])
def test_a_step_that_fails(place: str) -> None:
    """All who needed it are told; who steps directly later gets what there was of its own."""
    engine = small_engine()
    calls, worker = Calls(engine), engine.worker
    engine.add_request("mine", [0], LONG)
    began, go_on = stopped_at(engine, calls)
    calls.enqueue(asked(engine, LONG))
    thread, found = in_thread(lambda: calls.run(asked(engine, LONG), use_tqdm=False))
    assert began.wait(HANG_S)
    until(lambda: not calls._loops[0]._inbox.empty())
    worker.fail_at = place  # type: ignore[attr-defined]
    go_on.set()
    with pytest.raises(StepFailedError, match=f"injected at {place}"):
        calls.wait_enqueued(False)
    join(thread)
    assert isinstance(found[0], StepFailedError) or found[0][0].finished  # came before or behind
    [mine] = run(engine)
    assert (mine.request_id, mine.outputs[0].finish_reason) == ("mine", "abort")
    check_idle(engine)
    assert calls.run(asked(engine, GREEDY), use_tqdm=False)[0].finished


def test_who_is_out_of_time_has_an_output_though_the_step_fails() -> None:
    """It ends before the step, which only the others need."""
    engine = small_engine()
    calls, now = Calls(engine), 0.0
    engine.clock = lambda: now
    began, go_on = stopped_at(engine, calls)
    calls.enqueue(asked(engine, LONG))
    assert began.wait(HANG_S)
    requests = asked(engine, LONG, LONG, timeouts=[1.0, 2.0])
    thread, found = in_thread(lambda: calls.run(requests, use_tqdm=False))
    until(lambda: not calls._loops[0]._inbox.empty())
    worker: Any = engine.worker

    def fail(step: Any) -> Any:
        raise RuntimeError("on fire")

    def overdue() -> None:
        nonlocal now
        now, worker.launch = 5.0, fail

    calls._loops[0].post(overdue)
    go_on.set()
    join(thread)
    assert [one.outputs[0].stop_reason for one in found[0]] == ["timeout"] * 2
    with pytest.raises(StepFailedError, match="on fire"):
        calls.wait_enqueued(False)
    check_idle(engine)


def test_an_error_of_ours_keeps_its_type() -> None:
    engine = small_engine()
    calls, cause = Calls(engine), RuntimeError("RESOURCE_EXHAUSTED")
    worker: Any = engine.worker

    def fail(step: Any) -> Any:
        raise OutOfMemoryError("no room for a step") from cause

    worker.launch = fail
    with pytest.raises(OutOfMemoryError, match="no room for a step") as raised:
        calls.run(asked(engine, GREEDY), use_tqdm=False)
    assert raised.value.__cause__ is cause


def test_an_exception_that_is_none_does_not_end_the_engine() -> None:
    """`sys.exit` in a logits processor raises one."""
    engine = small_engine()
    calls, worker = Calls(engine), engine.worker
    launch = worker.launch

    def leave(step: Any) -> Any:
        worker.launch = launch  # type: ignore[method-assign]
        raise SystemExit(1)

    worker.launch = leave  # type: ignore[method-assign]
    with pytest.raises(StepFailedError, match="SystemExit"):
        calls.run(asked(engine, GREEDY), use_tqdm=False)
    assert calls.run(asked(engine, GREEDY), use_tqdm=False)[0].finished


def test_ctrl_c_ends_this_call_and_waits_for_that() -> None:
    engine = small_engine()
    calls = Calls(engine)
    began, go_on = stopped_at(engine, calls)
    calls.enqueue(asked(engine, LONG))

    def press() -> None:
        assert began.wait(HANG_S)
        until(lambda: not calls._loops[0]._inbox.empty())  # the call has come
        os.kill(os.getpid(), signal.SIGINT)
        go_on.set()

    thread, _ = in_thread(press)
    with ctrl_c_as_usual():
        with pytest.raises(KeyboardInterrupt):
            calls.run(asked(engine, LONG, LONG), use_tqdm=False)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    join(thread)
    assert len(engine.scheduler.groups) <= 1, "its requests have ended, the other goes on"
    [other] = calls.wait_enqueued(False)
    assert other.outputs[0].finish_reason == "length"
    check_idle(engine)
    assert calls.run(asked(engine, GREEDY), use_tqdm=False)[0].finished


def test_a_second_ctrl_c_does_not_wait() -> None:
    """The step still runs when the call returns; its requests end behind it."""
    engine = small_engine()
    calls = Calls(engine)
    began, go_on = stopped_at(engine, calls)

    def press_twice() -> None:
        assert began.wait(HANG_S)
        os.kill(os.getpid(), signal.SIGINT)
        until(lambda: not calls._loops[0]._inbox.empty())  # what the first has asked for
        os.kill(os.getpid(), signal.SIGINT)

    thread, _ = in_thread(press_twice)
    with ctrl_c_as_usual(), pytest.raises(KeyboardInterrupt):
        calls.run(asked(engine, LONG), use_tqdm=False)
    assert not go_on.is_set() and len(engine.scheduler.groups) == 1
    go_on.set()
    join(thread)
    until(lambda: not engine.has_unfinished_requests())
    assert calls.run(asked(engine, GREEDY), use_tqdm=False)[0].finished
    check_idle(engine)


def test_the_engine_is_its_own_while_a_call_runs() -> None:
    engine = small_engine()
    calls = Calls(engine)
    began, go_on = stopped_at(engine, calls)
    thread, found = in_thread(lambda: calls.run(asked(engine, GREEDY), use_tqdm=False))
    assert began.wait(HANG_S)
    for use in USES:
        with pytest.raises(EngineInUseError, match="a call of LLM runs"):
            use(engine)
    engine.check_request([0], GREEDY)  # any thread may
    go_on.set()
    join(thread)
    assert found[0][0].finished
    for use in USES:
        use(engine)
    assert [one.request_id for one in run(engine)] == ["mine"]


class WatchedLock:
    """The engine's lock: `comes` is called by a thread that has passed the first check."""

    def __init__(self, engine: LLMEngine, comes: Callable[[], None]) -> None:
        self._lock, self._comes, self._watched = engine._lock, comes, threading.get_ident()

    def __enter__(self) -> Any:
        if threading.get_ident() == self._watched:
            self._comes()
        return self._lock.__enter__()

    def __exit__(self, *raised: Any) -> Any:
        return self._lock.__exit__(*raised)


def check_free(lock: Any) -> None:
    assert lock.acquire(blocking=False), "who waits for it waits for a step"
    lock.release()


@pytest.mark.parametrize("use", USES)
def test_who_was_just_before_a_call_is_refused(use: Callable[[LLMEngine], Any]) -> None:
    """A call begins between the first check and the lock: nobody waits for its steps."""
    engine = small_engine()
    calls = Calls(engine)
    began, go_on = stopped_at(engine, calls)
    lock = engine._lock

    def used() -> Any:
        def call_begins() -> None:
            calls.enqueue(asked(engine, GREEDY))
            assert began.wait(HANG_S)
            check_free(lock)

        engine._lock = WatchedLock(engine, call_begins)  # type: ignore[assignment]
        return use(engine)

    thread, found = in_thread(used)
    join(thread)
    assert isinstance(found[0], EngineInUseError) and not go_on.is_set()
    go_on.set()
    assert calls.wait_enqueued(False)[0].finished
    check_idle(engine)


def test_who_waits_for_a_job_is_refused_when_it_begins_a_call() -> None:
    """A job without requests may use the engine for a while; behind it comes a call's."""
    engine = small_engine()
    calls = Calls(engine)
    lock, (began, go_on) = engine._lock, stopped_at(engine, calls)
    in_job, job_ends, waits = threading.Event(), threading.Event(), threading.Event()

    def job() -> None:
        in_job.set()
        assert job_ends.wait(HANG_S)
        calls._loops[0].add(requests, reader)

    def used() -> Any:
        engine._lock = WatchedLock(engine, waits.set)  # type: ignore[assignment]
        return engine.step()

    reader, requests = Call(), asked(engine, GREEDY)
    requests[0].group.request_id = "call's"
    calls._loops[0].post(job)
    assert in_job.wait(HANG_S)
    thread, found = in_thread(used)
    assert waits.wait(HANG_S)
    job_ends.set()
    assert began.wait(HANG_S)
    join(thread)
    check_free(lock)
    assert isinstance(found[0], EngineInUseError)
    go_on.set()
    assert reader.next().finished
    check_idle(engine)


def test_a_call_waits_while_somebody_steps_directly() -> None:
    engine = small_engine()
    calls, worker = Calls(engine), engine.worker
    launch, both = worker.launch, list[Any]()

    def meanwhile(step: Any) -> Any:
        worker.launch = launch  # type: ignore[method-assign]
        both.extend(in_thread(lambda: calls.run(asked(engine, GREEDY), use_tqdm=False)))
        until(lambda: calls._loops[0]._jobs)  # the loop has it, and wants the engine
        return launch(step)

    worker.launch = meanwhile  # type: ignore[method-assign]
    engine.add_request("mine", [0], LONG)
    assert engine.step() == []
    thread, found = both
    join(thread)
    assert found[0][0].finished
    assert run(engine)[-1].outputs[0].finish_reason == "length"


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    path, _ = tiny_llama(tmp_path_factory.mktemp("models") / "tiny")
    return LLM(str(path), skip_tokenizer_init=True, num_gpu_blocks_override=40)


def with_processor(processor: Any) -> SamplingParams:
    return SamplingParams(max_tokens=3, ignore_eos=True, logits_processors=[processor])


@pytest.mark.slow
def test_a_processor_may_look_but_not_wait(llm: LLM) -> None:
    """It is called by the thread that it would wait for."""
    errors, seen = list[BaseException](), list[int]()

    def processor(_: list[int], logits: Any) -> Any:
        seen.append(llm.llm_engine.stats().num_running)
        try:
            llm.generate([[3]], use_tqdm=False)
        except EngineInUseError as error:
            errors.append(error)
        return logits

    [output] = llm.generate([[3, 4]], with_processor(processor), use_tqdm=False)
    assert output.outputs[0].finish_reason == "length"
    assert seen == [1] * 3 and len(errors) == 3 and "wait for itself" in str(errors[0])


@pytest.mark.slow
def test_a_processor_has_its_caller_s_context(llm: LLM) -> None:
    """NumPy's errstate is a context variable; what others set is theirs."""
    mine = ContextVar("mine", default=0)
    found: dict[int, Any] = {}

    def call(number: int) -> None:
        def processor(_: list[int], logits: Any) -> Any:
            found[number] = mine.get(), np.geterr()["divide"]
            return logits

        mine.set(number)
        with np.errstate(divide="raise" if number % 2 else "ignore"):
            llm.generate([[3, 4]] * number, with_processor(processor), use_tqdm=False)

    threads = [threading.Thread(target=call, args=(i,), daemon=True) for i in range(1, 5)]
    for one in threads:
        one.start()
    join(*threads)
    assert found == {i: (i, "raise" if i % 2 else "ignore") for i in range(1, 5)}


@pytest.mark.parametrize(
    ("context", "name"),
    [
        (lambda: jax.default_matmul_precision("highest"), "jax_default_matmul_precision"),
        (jax.disable_jit, "jax_disable_jit"),
        (lambda: jax.debug_nans(True), "jax_debug_nans"),
        (lambda: jax.default_device(jax.devices()[0]), "jax_default_device"),
    ],
)
@pytest.mark.slow
def test_settings_of_jax_that_only_this_thread_has(llm: LLM, context: Any, name: str) -> None:
    with context(), pytest.raises(ConfigError, match=f"{name} is .* in the thread that calls LLM"):
        llm.generate([[3, 4]], use_tqdm=False)
    check_idle(llm.llm_engine)
    before = getattr(jax.config, name)
    jax.config.update("jax_numpy_rank_promotion", "warn")  # of all threads: the engine's, too
    try:
        assert llm.generate([[3, 4]], use_tqdm=False)[0].finished
    finally:
        jax.config.update("jax_numpy_rank_promotion", "allow")
    assert getattr(jax.config, name) == before


def test_a_stream_ends_when_nobody_reads_it() -> None:
    engine = small_engine()
    calls = Calls(engine)
    deltas = SamplingParams(**vars(LONG) | {"output_kind": RequestOutputKind.DELTA})
    [wanted] = calls.run(asked(engine, LONG), use_tqdm=False)
    outputs: list[Any] = list(calls.stream(*asked(engine, deltas)))
    tokens = [token for one in outputs for token in one.outputs[0].token_ids]
    assert tokens == wanted.outputs[0].token_ids
    assert [one.finished for one in outputs] == [False] * (len(outputs) - 1) + [True]
    stream = calls.stream(*asked(engine, deltas))
    next(stream)
    stream.close()
    check_idle(engine)


@pytest.mark.slow
def test_without_calls_the_loop_ends_and_the_engine_is_freed() -> None:
    """Errors, whose tracebacks hold what they passed, and running requests do not prevent it."""
    engine = small_engine()
    calls, gone = Calls(engine), weakref.ref(engine)
    [thread] = [one for one in threading.enumerate() if one.name == "jax-engine"
                and one._target.__self__ is calls._loops[0]]  # type: ignore[attr-defined]  # fmt: skip
    calls.run(asked(engine, GREEDY), use_tqdm=False)
    with pytest.raises(InvalidRequestError):
        calls.of_each(lambda _: asked(engine, None, timeouts=[-1.0]))
    calls.enqueue(asked(engine, LONG))
    gc.collect()  # what is made of cycles before, not by calls
    gc.disable()
    try:
        del calls, engine
        assert not thread.is_alive() and gone() is None
    finally:
        gc.enable()


def test_who_still_asks_an_ended_loop_is_told() -> None:
    engine = small_engine()
    calls = Calls(engine)
    began, go_on = stopped_at(engine, calls)
    thread, found = in_thread(lambda: calls.run(asked(engine, LONG), use_tqdm=False))
    assert began.wait(HANG_S)
    calls._loops[0].stop()
    late, found_late = in_thread(lambda: calls.run(asked(engine, GREEDY), use_tqdm=False))
    go_on.set()
    join(thread, late)
    for error in (*found, *found_late):
        assert isinstance(error, EngineDeadError) and "shut down" in str(error)
    with pytest.raises(EngineDeadError, match="shut down"):
        calls.run(asked(engine, GREEDY), use_tqdm=False)
    check_idle(engine)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_of_the_loop_s_own_is_told_to_all() -> None:
    engine = small_engine()
    calls = Calls(engine)
    calls.enqueue(asked(engine, LONG))
    calls._loops[0].post(lambda: 1 / 0)  # type: ignore[arg-type,return-value]
    with pytest.raises(EngineDeadError, match="a bug"):
        calls.wait_enqueued(False)
    with pytest.raises(EngineDeadError, match="a bug"):
        calls.run(asked(engine, GREEDY), use_tqdm=False)


@pytest.mark.slow
def test_python_may_end_amid_a_step(tmp_path: Any) -> None:
    """It ends daemon threads where they stand: in a call of XLA, that would abort the process."""
    path, _ = tiny_llama(tmp_path / "tiny")
    program = f"""
import atexit, threading
def threads():  # but tqdm's own, which is there where a bar has been shown, and only sleeps
    return [one.name for one in threading.enumerate() if one.name != "tqdm_monitor"]
atexit.register(lambda: print(threads()))  # runs behind ours
import jax_engine
from jax_engine import LLM, SamplingParams
print(threads())  # an import starts none
llm = LLM({str(path)!r}, skip_tokenizer_init=True, num_gpu_blocks_override=200, block_size=4)
params = SamplingParams(max_tokens=60, ignore_eos=True, detokenize=False)
llm.generate([[3, 4]], SamplingParams(max_tokens=2, detokenize=False), use_tqdm=False)
llm.enqueue([[3, 4, 5]] * 200, params, use_tqdm=False)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_S
    )
    assert (done.returncode, done.stdout) == (0, "['MainThread']\n" * 2), done.stderr
