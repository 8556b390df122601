"""Coroutines over one engine: the same tokens as in `LLM`, pauses, aborts, errors."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from itertools import count
from typing import Any

import pytest
from jax_engine.compat.async_llm import AsyncLLM

from jax_engine import LLM, InvalidRequestError, PoolingParams, RequestOutputKind, SamplingParams
from jax_engine.config import EngineConfig
from tests.support.patience import HANG_S, until
from tests.support.tiny_llama import tiny_llama

LONG = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True, detokenize=False)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path, _ = tiny_llama(tmp_path_factory.mktemp("models") / "tiny")
    return {
        "model": str(path),
        "num_gpu_blocks_override": 100,
        "block_size": 4,
        "skip_tokenizer_init": True,
    }


@pytest.fixture(scope="module")
def engine(settings: dict[str, Any]) -> Iterator[AsyncLLM]:
    engine = AsyncLLM.from_config(EngineConfig.from_settings(**settings))
    yield engine
    engine.shutdown()


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, HANG_S))


async def last(engine: AsyncLLM, prompt: Any, params: SamplingParams, name: str) -> Any:
    output = None
    async for one in engine.generate(prompt, params, name):
        output = one
    return output


def test_the_same_tokens_as_generate(engine: AsyncLLM, settings: dict[str, Any]) -> None:
    prompts = [[3, 4, 5], [6], [7, 8]]

    async def all_of_them() -> list[Any]:
        jobs = [last(engine, prompt, LONG, str(i)) for i, prompt in enumerate(prompts)]
        return await asyncio.gather(*jobs)

    expected = LLM(**settings).generate(prompts, LONG, use_tqdm=False)
    found = run(all_of_them())
    assert [one.outputs[0].token_ids for one in found] == [
        one.outputs[0].token_ids for one in expected
    ]


def test_deltas_add_up(engine: AsyncLLM) -> None:
    deltas = SamplingParams(**{**vars(LONG), "output_kind": RequestOutputKind.DELTA})

    async def joined() -> list[int]:
        tokens: list[int] = []
        async for output in engine.generate([3, 4], deltas, "deltas"):
            tokens += output.outputs[0].token_ids
        return tokens

    assert run(joined()) == run(last(engine, [3, 4], LONG, "whole")).outputs[0].token_ids


def hold_after(steps: int, engine: AsyncLLM, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The step behind so many waits for a job of the client's, or for the event."""
    step, number, go_on = engine.llm_engine.step, count(1), threading.Event()

    def held() -> Any:
        if next(number) == steps + 1:
            until(lambda: go_on.is_set() or not engine._jobs.empty(), "a job")
        return step()

    monkeypatch.setattr(engine.llm_engine, "step", held)
    return go_on


def test_nothing_comes_while_it_is_paused(
    engine: AsyncLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = hold_after(10, engine, monkeypatch)

    async def paused() -> tuple[int, int, Any]:
        seen: list[Any] = []

        async def listen() -> None:
            async for output in engine.generate([5], LONG, "paused"):
                seen.append(output)

        task = asyncio.create_task(listen())
        while len(seen) < 3:
            await asyncio.sleep(0.001)
        await engine.pause_generation(mode="keep")
        go_on.set()
        assert await engine.is_paused()
        for _ in range(100):  # what was sent before is in the loop: each takes a turn or two
            await asyncio.sleep(0)
        before = len(seen)
        await asyncio.sleep(0.2)
        during = len(seen)
        await engine.resume_generation()
        await task
        return before, during, seen[-1]

    before, during, final = run(paused())
    assert before == during < 40
    assert len(final.outputs[0].token_ids) == 40


@pytest.mark.parametrize(("mode", "reason"), [("abort", "abort"), ("wait", "length")])
def test_what_a_pause_does_to_running_requests(
    engine: AsyncLLM, mode: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = hold_after(1, engine, monkeypatch)

    async def ended() -> Any:
        task = asyncio.create_task(last(engine, [5], LONG, mode))
        await asyncio.sleep(0.001)
        while not engine.llm_engine.has_unfinished_requests():
            await asyncio.sleep(0.001)
        await engine.pause_generation(mode=mode)
        go_on.set()
        output = await task
        await engine.resume_generation()
        return output

    assert run(ended()).outputs[0].finish_reason == reason


def test_a_coroutine_that_stops_listening_aborts(engine: AsyncLLM) -> None:
    async def stopped() -> bool:
        stream = engine.generate([5], LONG, "left")
        await anext(stream)
        await stream.aclose()
        return bool(await engine._in_thread(engine.llm_engine.has_unfinished_requests))

    assert run(stopped()) is False


def test_abort_gives_what_there_is(engine: AsyncLLM) -> None:
    async def aborted() -> Any:
        task = asyncio.create_task(last(engine, [5], LONG, "aborted"))
        await engine.pause_generation(mode="keep")
        await asyncio.sleep(0.05)
        await engine.abort("aborted")
        await engine.resume_generation()
        return await task

    assert run(aborted()).outputs[0].finish_reason == "abort"


def test_errors_reach_the_one_who_asked(engine: AsyncLLM) -> None:
    with pytest.raises(InvalidRequestError, match="at least 1 token"):
        run(last(engine, [], LONG, "empty"))
    with pytest.raises(InvalidRequestError, match="mode must be"):
        run(engine.pause_generation(mode="sleep"))  # type: ignore[arg-type]


def test_two_of_one_name_leave_the_first_alone(engine: AsyncLLM) -> None:
    async def both() -> Any:
        first = asyncio.create_task(last(engine, [5], LONG, "same"))
        await engine.pause_generation(mode="keep")
        with pytest.raises(InvalidRequestError, match="already running"):
            await last(engine, [6], LONG, "same")
        await engine.resume_generation()
        return await first

    assert run(both()).outputs[0].finish_reason == "length"


def test_a_failing_step_reaches_everybody_and_the_engine_goes_on(
    engine: AsyncLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(now: float) -> Any:
        monkeypatch.undo()
        raise OSError("the device is gone")

    monkeypatch.setattr(engine.llm_engine._pipeline, "step", fail)
    with pytest.raises(OSError, match="device is gone"):
        run(last(engine, [5], LONG, "unlucky"))
    assert run(last(engine, [5], LONG, "next")).outputs[0].finish_reason == "length"


def test_embeddings(engine: AsyncLLM) -> None:
    async def embedded() -> Any:
        return [one async for one in engine.encode([5, 6], PoolingParams(), "embedded")]

    (output,) = run(embedded())
    assert output.finished and output.outputs.data.shape == (20,)


def test_after_shutdown_there_is_an_error(settings: dict[str, Any]) -> None:
    engine = AsyncLLM.from_config(EngineConfig.from_settings(**settings))

    async def cut_off() -> None:
        task = asyncio.create_task(last(engine, [5], LONG, "cut off"))
        await engine.pause_generation(mode="keep")
        engine.shutdown()
        await task

    with pytest.raises(RuntimeError, match="shut down"):
        run(cut_off())
    with pytest.raises(RuntimeError, match="shut down"):
        run(last(engine, [5], LONG, "late"))
    engine.shutdown()


def test_a_program_may_end_amid_a_step(settings: dict[str, Any]) -> None:
    """Python ends daemon threads where they stand: in a call of XLA, that aborts the process."""
    program = f"""
import asyncio, atexit, threading
atexit.register(lambda: print([t.name for t in threading.enumerate()]))  # runs after ours
from jax_engine import SamplingParams
from jax_engine.compat.async_llm import AsyncLLM
from jax_engine.config import EngineConfig

async def main():
    params = SamplingParams(max_tokens=200, ignore_eos=True, detokenize=False)
    running.append(engine.generate([3, 4, 5], params, "a"))
    await anext(running[0])

engine, running = AsyncLLM.from_config(EngineConfig.from_settings(**{settings!r})), []
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_S
    )
    assert (done.returncode, done.stdout) == (0, "['MainThread']\n"), done.stderr
