"""`AsyncLLM` with its engine in a process of its own, beside `LLM` in this one."""

import asyncio
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from jax_engine import (
    LLM,
    AsyncLLM,
    ConfigError,
    EngineDeadError,
    InvalidRequestError,
    ModelNotFoundError,
    PoolingParams,
    RequestOutputKind,
    RequestTooLargeError,
    SamplingParams,
)
from jax_engine.processes.child_process import connect
from jax_engine.serving import engine_client
from jax_engine.serving.messages import REPORTS, Heartbeat, encode
from tests.support.byte_tokenizer import VOCAB
from tests.support.engine_in_thread import in_threads
from tests.support.patience import HANG_S, until

CUMULATIVE, DELTA, FINAL_ONLY = RequestOutputKind
SETTINGS: dict[str, Any] = {
    "block_size": 4,
    "max_model_len": 64,
    "max_num_seqs": 8,
    "num_gpu_blocks_override": 60,
}
PROMPTS = ["Once", "The capital of", "é"]
PARAMS = [
    SamplingParams(temperature=0.0, max_tokens=9),
    SamplingParams(seed=3, max_tokens=20, n=2, logprobs=2, prompt_logprobs=1),
    SamplingParams(seed=4, max_tokens=20, stop=["a", "e"], include_stop_str_in_output=True),
    SamplingParams(seed=5, max_tokens=12, n=2, best_of=4, flat_logprobs=True, logprobs=0),
    SamplingParams(use_beam_search=True, n=2, temperature=0.0, max_tokens=6),
    SamplingParams(seed=6, max_tokens=8, detokenize=False, logit_bias={65: 50.0}),
    SamplingParams(seed=7, max_tokens=None),
]
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs a coroutine in the module's loop; none may hang."""
    with asyncio.Runner() as runner:
        yield lambda coroutine: runner.run(asyncio.wait_for(coroutine, HANG_S))


@pytest.fixture(scope="module")
def llm(checkpoint: Path) -> Iterator[AsyncLLM]:
    engine = AsyncLLM(str(checkpoint), **SETTINGS)
    yield engine
    engine.shutdown()


async def outputs(stream: AsyncIterator[Any]) -> list[Any]:
    return [one async for one in stream]


async def aborts(llm: AsyncLLM) -> int:
    """How many requests have ended by an abort."""
    reason = "finished_reason"
    found = [one for one in await llm.get_metrics() if one["labels"].get(reason) == "abort"]
    return sum(one["value"] for one in found)


async def idle(llm: AsyncLLM) -> bool:
    """I9, I22: in the end nothing is left of anybody."""
    while True:
        stats = await llm.get_stats()
        left = [stats[f"num_{name}"] for name in ("used_blocks", "running", "waiting", "swapped")]
        if not any(left) and not llm.num_unfinished_requests:
            return True
        await asyncio.sleep(0.05)


@pytest.mark.slow
def test_outputs_are_those_of_llm(llm: AsyncLLM, checkpoint: Path, run: Run) -> None:
    """I32, I36: all at once, in another process, and text made in this one."""
    asked = [(prompt, params) for prompt in PROMPTS for params in PARAMS]
    prompts, params = zip(*asked, strict=True)
    offline = LLM(str(checkpoint), **SETTINGS).generate(prompts, params, use_tqdm=False)

    async def all_at_once() -> list[Any]:
        final = [dataclasses.replace(one, output_kind=FINAL_ONLY) for one in params]
        streams = (llm.generate(*pair) for pair in zip(prompts, final, strict=True))
        return await asyncio.gather(*(outputs(stream) for stream in streams))

    for mine, [theirs] in zip(offline, run(all_at_once()), strict=True):
        assert theirs.finished
        for one, other in zip(mine.outputs, theirs.outputs, strict=True):
            assert (one.text, one.token_ids) == (other.text, other.token_ids)
            assert one.finish_reason == other.finish_reason
            assert one.stop_reason == other.stop_reason
            assert type(one.logprobs) is type(other.logprobs)
            for entry, same in zip(one.logprobs or (), other.logprobs or (), strict=True):
                assert [(token, e.rank, e.decoded_token) for token, e in entry.items()] == [
                    (token, e.rank, e.decoded_token) for token, e in same.items()
                ]
        assert mine.prompt_token_ids == theirs.prompt_token_ids
        assert (mine.prompt_logprobs is None) == (theirs.prompt_logprobs is None)
    assert run(idle(llm))


@pytest.mark.slow
def test_deltas_add_up_and_who_reads_late_gets_them_at_once(llm: AsyncLLM, run: Run) -> None:
    params = SamplingParams(seed=1, max_tokens=30, ignore_eos=True, output_kind=DELTA)

    async def read(*, late: bool) -> list[Any]:
        found, stream = [], llm.generate("Tell me", params)
        async for one in stream:
            found.append(one)
            while late and llm.num_unfinished_requests:
                await asyncio.sleep(0.01)
        return found

    late = run(read(late=True))
    assert len(late) <= 2
    # Again, should it have come to the first when the engine had made them all.
    quick: list[Any] = until(lambda: one if len(one := run(read(late=False))) > 2 else None)
    for found in (quick, late):
        assert [one.finished for one in found] == [False] * (len(found) - 1) + [True]
    text = ["".join(one.outputs[0].text for one in found) for found in (quick, late)]
    tokens = [[t for one in found for t in one.outputs[0].token_ids] for found in (quick, late)]
    assert text[0] == text[1] and tokens[0] == tokens[1] and len(tokens[0]) == 30


def test_i22_who_leaves_or_is_aborted_frees_everything(llm: AsyncLLM, run: Run) -> None:
    params = SamplingParams(max_tokens=50, ignore_eos=True, n=3, seed=1)

    async def leave() -> bool:
        task = asyncio.ensure_future(outputs(llm.generate("a", params, "cancelled")))
        stream = llm.generate("b", params, "closed")
        await anext(stream)
        await stream.aclose()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        aborted = llm.generate("c", params, "aborted")
        await anext(aborted)
        await llm.abort(["aborted", "unknown"])
        last = (await outputs(aborted))[-1]
        assert last.finished
        return {one.finish_reason for one in last.outputs} == {"abort"}

    def all_left() -> bool:
        """False where the engine was faster than the caller that leaves."""
        before = run(aborts(llm))
        in_time = run(leave())
        return run(idle(llm)) and in_time and run(aborts(llm)) - before >= 2

    until(all_left, "three aborts")


def test_i21_what_is_refused_says_why_and_disturbs_nobody(llm: AsyncLLM, run: Run) -> None:
    class Processor:
        def __call__(self, tokens: Any, logits: Any) -> Any:
            return logits

    refused: list[tuple[Any, Any, dict[str, Any], str]] = [
        ("", SamplingParams(), {}, "prompt must have at least 1 token"),
        ([VOCAB], SamplingParams(), {}, r"prompt_token_ids\[0\] must be in"),
        ("x" * 70, SamplingParams(), {}, "64"),
        ("x", SamplingParams(logprobs=21), {}, "logprobs must be at most max_logprobs"),
        ("x", SamplingParams(logits_processors=[Processor()]), {}, "logits_processors must be"),
        ("x", SamplingParams(), {"priority": "high"}, "priority must be an integer"),
        ("x", SamplingParams(), {"timeout": -1.0}, "timeout must be"),
        ("x", PoolingParams(), {}, "sampling_params must be SamplingParams"),
        ("x", SamplingParams(), {"request_id": 5}, "request_id must be a string"),
    ]

    async def ask() -> None:
        stream = llm.generate("ab", SamplingParams(max_tokens=40, ignore_eos=True), "same")
        os.kill(llm.engine_pid, signal.SIGSTOP)  # else it might have ended before it is asked again
        try:
            other = asyncio.ensure_future(outputs(stream))
            while not llm.num_unfinished_requests:
                await asyncio.sleep(0.001)
            with pytest.raises(InvalidRequestError, match="'same' is already running"):
                await outputs(llm.generate("x", SamplingParams(), "same"))
        finally:
            os.kill(llm.engine_pid, signal.SIGCONT)
        for prompt, params, options, why in refused:
            with pytest.raises(InvalidRequestError, match=why):
                await outputs(llm.generate(prompt, params, **options))
        with pytest.raises(RequestTooLargeError):
            await outputs(llm.generate("x" * 64, SamplingParams(max_tokens=5)))
        assert len((await other)[-1].outputs[0].token_ids) == 40
        await outputs(llm.generate("x", SamplingParams(max_tokens=1), "same"))

    run(ask())
    assert run(idle(llm))


def test_embeddings_and_timeouts(llm: AsyncLLM, checkpoint: Path, run: Run) -> None:
    offline = LLM(str(checkpoint), **SETTINGS).encode(["One", "Two"], use_tqdm=False)
    for prompt, mine in zip(["One", "Two"], offline, strict=True):
        [theirs] = run(outputs(llm.encode(prompt)))
        np.testing.assert_allclose(theirs.outputs.data, mine.outputs.data, rtol=1e-5, atol=1e-6)
        assert theirs.prompt_token_ids == mine.prompt_token_ids
    [late] = run(outputs(llm.generate("x", SamplingParams(output_kind=FINAL_ONLY), timeout=1e-9)))
    assert late.outputs[0].finish_reason == "abort" and late.outputs[0].stop_reason == "timeout"


@pytest.mark.slow
def test_a_step_that_hangs_is_the_engines_death(llm: AsyncLLM, checkpoint: Path, run: Run) -> None:
    """Its process goes on to say that it lives, and for how long the step has run."""
    assert run(after_a_step_of(299.0, llm)) is None
    stalled = AsyncLLM(str(checkpoint), **SETTINGS)
    assert "has run for 301 s" in str(run(after_a_step_of(301.0, stalled)))
    stalled.shutdown()


async def after_a_step_of(seconds: float, llm: AsyncLLM) -> str | None:
    """What is wrong with an engine whose step has run for so long."""
    context = zmq.Context()
    try:
        reports = connect(context, zmq.PUSH, f"{llm._engines._clients[0]._folder}/{REPORTS}")
        await outputs(llm.generate("x", SamplingParams(max_tokens=1)))  # it listens
        os.kill(llm.engine_pid, signal.SIGSTOP)  # no true beat comes
        while llm._engines._clients[0].step_seconds != seconds:
            reports.send(encode(Heartbeat(seconds)))  # again, behind a true one that had been sent
            await asyncio.sleep(0.01)
        if not llm.errored:
            return None
        with pytest.raises(EngineDeadError) as told:
            await llm.check_health()
        assert str(told.value) == str(llm.dead_error)
        return str(told.value)
    finally:
        with contextlib.suppress(ProcessLookupError):  # it may have been killed by now
            os.kill(llm.engine_pid, signal.SIGCONT)
        context.destroy(linger=1000)


def test_another_loop_may_go_on(llm: AsyncLLM) -> None:
    for _ in range(2):
        found = asyncio.run(outputs(llm.generate("x", SamplingParams(max_tokens=2))))
        assert found[-1].finished


def test_an_engine_that_cannot_start_says_why(checkpoint: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        AsyncLLM(str(checkpoint / "nowhere"))
    with pytest.raises(ConfigError, match="hf_overrides must be plain data"):
        AsyncLLM(str(checkpoint), hf_overrides=lambda config: config)


def test_a_process_that_never_connects_is_no_hang(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that fails before the sockets are there."""

    def start(folder: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-c", "exit(3)"], stdin=subprocess.PIPE)

    monkeypatch.setattr(engine_client, "_start", start)
    with pytest.raises(EngineDeadError, match="exit status 3"):
        AsyncLLM(str(checkpoint), **SETTINGS)


@pytest.mark.slow
def test_the_engine_ends_with_the_process_that_started_it(checkpoint: Path) -> None:
    code = f"""
import os
from jax_engine import AsyncLLM
print(AsyncLLM({str(checkpoint)!r}, **{SETTINGS!r}).engine_pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S
    )
    pid = int(done.stdout)
    until(lambda: not Path(f"/proc/{pid}").exists(), f"the end of process {pid}")


def test_one_loop_may_have_one_engine_after_another(
    checkpoint: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sockets of the second have the numbers of those of the first, which are closed."""
    in_threads(monkeypatch)

    async def twice() -> list[int]:
        counts, before = [], set(threading.enumerate())
        for _ in range(2):
            llm = AsyncLLM(str(checkpoint), **SETTINGS)
            found = await outputs(llm.generate("x", SamplingParams(max_tokens=3, ignore_eos=True)))
            counts.append(len(found[-1].outputs[0].token_ids))
            with pytest.raises(RequestTooLargeError):  # by the thread that tokenises such texts
                await outputs(llm.generate("x" * 2000))
            llm.shutdown()
            after = set(threading.enumerate()) - before
            assert not [one for one in after if one.name.startswith("texts")]
        return counts

    assert run(twice()) == [3, 3]
