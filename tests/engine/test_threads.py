"""One `LLM` used by many threads at once: one batch, everybody's own outputs, nobody hangs."""

import random
import threading
import time
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pytest

from jax_engine import (
    LLM,
    BeamSearchParams,
    InvalidRequestError,
    RequestOutput,
    SamplingParams,
    StepFailedError,
)
from tests.support.byte_tokenizer import save_letter_tokenizer
from tests.support.in_process import check_idle
from tests.support.patience import HANG_S, join, until
from tests.support.tiny_llama import EOS, VOCAB, tiny_llama

SETTINGS: dict[str, Any] = {
    "block_size": 4, "max_model_len": 40, "max_num_seqs": 6, "num_gpu_blocks_override": 40
}  # fmt: skip


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    path, _ = tiny_llama(tmp_path_factory.mktemp("models") / "tiny")
    save_letter_tokenizer(path, VOCAB, EOS)
    return LLM(str(path), **SETTINGS)


def in_threads(calls: list[Callable[[], Any]]) -> list[Any]:
    """What each call returned, or the exception that it raised; all begin at the same moment."""
    found: list[Any] = [None] * len(calls)
    start = threading.Barrier(len(calls))

    def run(i: int) -> None:
        start.wait()
        try:
            found[i] = calls[i]()
        except BaseException as error:
            found[i] = error

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(calls))]
    for one in threads:
        one.start()
    join(*threads)
    return found


def tokens(outputs: list[Any]) -> list[list[list[int]]]:
    return [[one.token_ids for one in output.outputs] for output in outputs]


def params(seed: int, **changes: Any) -> SamplingParams:
    return SamplingParams(**({"seed": seed, "max_tokens": 12, "ignore_eos": True} | changes))


def workload(i: int) -> tuple[list[list[int]], list[SamplingParams]]:
    """One thread's own prompts, one to four of different lengths, and their parameters."""
    rng = random.Random(i)
    prompts = [
        [3 + i, *rng.choices(range(3, VOCAB), k=rng.randint(0, 9))] for _ in range(1 + i % 4)
    ]
    return prompts, [params(100 * i + j, n=1 + j % 2) for j in range(len(prompts))]


@pytest.mark.slow
def test_many_threads_get_what_they_get_alone(llm) -> None:
    """Each thread makes calls of its own sizes and lengths, and sees only its own outputs."""
    alone = [tokens(llm.generate(*workload(i), use_tqdm=False)) for i in range(12)]

    def call(i: int) -> list[Any]:
        return [tokens(llm.generate(*workload(i), use_tqdm=False)) for _ in range(3)]

    together = in_threads([lambda i=i: call(i) for i in range(12)])
    assert together == [[one] * 3 for one in alone]
    check_idle(llm.llm_engine)


@pytest.mark.slow
def test_all_kinds_of_calls_share_the_batch(llm) -> None:
    beams = BeamSearchParams(beam_width=2, max_tokens=5)
    calls: list[Callable[[], Any]] = [
        lambda: tokens(llm.generate("ABC", params(1), use_tqdm=False)),
        lambda: tokens(llm.chat([{"role": "user", "content": "A"}], params(2), False)),
        lambda: [one.tokens for one in llm.beam_search("AB", beams, use_tqdm=False)[0].sequences],
    ]
    alone = [call() for call in calls]
    vector = np.array(llm.embed("ABCDE", use_tqdm=False)[0].outputs.embedding)
    calls.append(lambda: llm.embed("ABCDE", use_tqdm=False)[0].outputs.embedding)
    calls.append(lambda: llm.generate([VOCAB], params(1), use_tqdm=False))
    for kinds in (together := in_threads(calls * 3))[0:5], together[5:10], together[10:15]:
        assert kinds[:3] == alone
        np.testing.assert_allclose(kinds[3], vector, atol=1e-5)
        assert isinstance(kinds[4], InvalidRequestError)
    check_idle(llm.llm_engine)


@pytest.mark.parametrize("first", ["short", "long"])
def test_a_call_returns_when_its_own_requests_have_ended(llm, first) -> None:
    """Whichever of two steps: the short call waits for no step of the long one's alone.

    Again, should one have ended before the other began.
    """
    engine, launch, ended = llm.llm_engine, llm.llm_engine.worker.launch, threading.Event()
    met, gone = False, threading.Event()

    def after_the_short_call(*args: Any) -> Any:
        nonlocal met
        count = len(engine.scheduler.groups)
        met |= count == 3
        if met and count == 2 and not ended.wait(HANG_S):
            raise TimeoutError("the short call waits for the long one")
        time.sleep(0.005)  # so that the second call comes before the first has ended
        return launch(*args)

    def begins(kind: str, count: int) -> None:
        """The second waits for the first: for its requests, or for its end."""
        if first != kind:
            until(lambda: len(engine.scheduler.groups) >= count or gone.is_set())

    def short() -> None:
        begins("short", 2)
        llm.generate("A", params(1, max_tokens=15), use_tqdm=False)
        ended.set()
        gone.set()

    def long() -> list[int]:
        begins("long", 1)
        outputs = llm.generate(["AB", "D"], params(2, max_tokens=30), use_tqdm=False)
        gone.set()
        return [len(one.outputs[0].token_ids) for one in outputs]

    def overlap() -> bool:
        ended.clear()
        gone.clear()
        assert in_threads([short, long]) == [None, [30, 30]]
        return met

    engine.worker.launch = after_the_short_call
    try:
        until(overlap, "two calls at once")
    finally:
        engine.worker.launch = launch
    check_idle(engine)


def test_requests_that_somebody_else_aborts_come_back_as_far_as_they_came(llm) -> None:
    engine, stop = llm.llm_engine, threading.Event()

    def abort_every_third() -> None:
        def abort() -> None:
            llm._calls._loops[0].abort(
                [one for one in engine.scheduler.groups if int(one) % 3 == 0]
            )

        while not stop.is_set():
            llm._calls.of_each(lambda _: abort())
            time.sleep(0.001)

    alone = [tokens(llm.generate(*workload(i), use_tqdm=False)) for i in range(6)]
    aborter = threading.Thread(target=abort_every_third, daemon=True)
    aborter.start()
    try:
        calls = [lambda i=i: llm.generate(*workload(i), use_tqdm=False) for i in range(6)]
        found = in_threads(calls)
    finally:
        stop.set()
        join(aborter)
    for wanted, outputs in zip(alone, found, strict=True):
        for samples, output in zip(wanted, outputs, strict=True):
            for full, one in zip(samples, output.outputs, strict=False):
                assert one.token_ids == full[: len(one.token_ids)]
                assert one.token_ids == full or one.finish_reason == "abort"
    check_idle(engine)


def test_a_failing_step_fails_all_calls_that_shared_it(llm) -> None:
    """Each raises an error that names it; then all goes on."""
    worker, launch, together = llm.llm_engine.worker, llm.llm_engine.worker.launch, 4
    alone = tokens(llm.generate("AB", params(5), use_tqdm=False))

    def fail(*args: Any) -> Any:
        if len(llm.llm_engine.scheduler.groups) == together:
            raise RuntimeError("the device is on fire")
        return launch(*args)

    call = lambda: llm.generate("AB", params(5, max_tokens=30), use_tqdm=False)  # noqa: E731
    worker.launch = fail
    try:
        found = in_threads([call] * together)
    finally:
        worker.launch = launch
    assert len({id(error) for error in found}) == together, "each has its own traceback"
    for error in found:
        assert isinstance(error, StepFailedError) and "on fire" in str(error)
        assert str(error.__cause__) == "the device is on fire"
    check_idle(llm.llm_engine)
    assert tokens(llm.generate("AB", params(5), use_tqdm=False)) == alone


def test_enqueued_requests_run_along_and_are_waited_for_once(llm) -> None:
    alone = [tokens(llm.generate(*workload(i), use_tqdm=False)) for i in range(3)]
    ids = llm.enqueue(*workload(0), use_tqdm=False) + llm.enqueue(*workload(1), use_tqdm=False)
    assert tokens(llm.generate(*workload(2), use_tqdm=False)) == alone[2]
    outputs = llm.wait_for_completion(RequestOutput, use_tqdm=False)
    assert [one.request_id for one in outputs] == ids
    assert tokens(outputs) == alone[0] + alone[1]
    assert llm.wait_for_completion(use_tqdm=False) == []
    with pytest.raises(InvalidRequestError, match="output_type"):
        llm.wait_for_completion(str)
    check_idle(llm.llm_engine)


def test_each_enqueued_request_reaches_one_of_those_who_wait(llm) -> None:
    alone = [tokens(llm.generate(*workload(i), use_tqdm=False)) for i in range(8)]

    def enqueue_and_wait(i: int) -> list[Any]:
        llm.enqueue(*workload(i), use_tqdm=False)
        return tokens(llm.wait_for_completion(use_tqdm=False))

    found = in_threads([lambda i=i: enqueue_and_wait(i) for i in range(8)])
    assert sorted(chain(*found)) == sorted(chain(*alone))
    check_idle(llm.llm_engine)
