"""Pauses of vLLM's `AsyncLLM` while something is in flight, on an engine without a device."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from jax_engine.compat.async_llm import AsyncLLM

from jax_engine import InvalidRequestError, SamplingParams
from tests.support.patience import HANG_S
from tests.support.small_engine import small_engine

PROMPT = [0, 1, 1, 0, 1, 0, 0, 0, 1]  # two blocks of 4, and one token more
PARAMS = SamplingParams(seed=3, max_tokens=20, ignore_eos=True, temperature=2.0)
type Streams = Any


@pytest.fixture
def engine() -> Iterator[AsyncLLM]:
    engine = AsyncLLM(small_engine())
    yield engine
    engine.shutdown()


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, HANG_S))


async def last(engine: AsyncLLM, name: str, params: SamplingParams = PARAMS) -> Any:
    return [one async for one in engine.generate(PROMPT, params, name)][-1]


async def begun(engine: AsyncLLM, name: str) -> Any:
    """A stream that has had its first output, with the engine paused behind it."""
    stream = engine.generate(PROMPT, PARAMS, name)
    await anext(stream)
    await engine.pause_generation(mode="keep")
    return stream


def test_i36_a_pause_that_keeps_changes_nothing_and_keeps_the_cache(engine: AsyncLLM) -> None:
    async def paused() -> tuple[Any, Any, Any]:
        whole = await last(engine, "whole")
        stream = await begun(engine, "paused")
        used = engine.llm_engine.stats().num_used_blocks
        assert await engine.is_paused() and used > 0
        assert engine.llm_engine.stats().num_cached_blocks >= 2
        await engine.resume_generation()
        assert not await engine.is_paused()
        return whole, [one async for one in stream][-1], await last(engine, "after")

    whole, through, after = run(paused())
    assert through.outputs[0].token_ids == whole.outputs[0].token_ids
    assert (whole.num_cached_tokens, through.num_cached_tokens) == (0, 8)
    assert after.num_cached_tokens == 8 and after.outputs == whole.outputs


@pytest.mark.parametrize("mode", ["abort", "wait", "keep"])
@pytest.mark.parametrize("clear_cache", [True, False])
def test_what_is_left_of_the_cache(engine: AsyncLLM, mode: Any, clear_cache: bool) -> None:
    async def paused() -> int:
        await last(engine, "before")
        await engine.pause_generation(mode=mode, clear_cache=clear_cache)
        await engine.resume_generation()
        return int((await last(engine, "after")).num_cached_tokens)

    assert run(paused()) == (0 if clear_cache and mode != "keep" else 8)


@pytest.mark.parametrize("mode", ["abort", "wait"])
def test_a_cache_is_cleared_though_somebody_runs(engine: AsyncLLM, mode: Any) -> None:
    async def paused() -> tuple[Any, int]:
        stream = engine.generate(PROMPT, PARAMS, "first")
        await anext(stream)
        await engine.pause_generation(mode=mode)
        assert engine.llm_engine.stats().num_cached_blocks == 0
        first = [one async for one in stream][-1]
        await engine.resume_generation()
        return first, (await last(engine, "after")).num_cached_tokens

    first, cached = run(paused())
    assert first.finished and cached == 0
    assert (len(first.outputs[0].token_ids) == 20) == (mode == "wait")


def test_who_comes_while_others_are_waited_for_does_not_delay_the_pause(engine: AsyncLLM) -> None:
    async def flood() -> tuple[bool, Any]:
        """Somebody always comes before the one before has ended."""
        held = await begun(engine, "held")  # so that the drain cannot end before all have come
        pause = asyncio.create_task(engine.pause_generation(mode="wait"))
        await engine._in_thread(lambda: None)
        late = [asyncio.create_task(last(engine, f"late {i}")) for i in range(3)]
        same = asyncio.create_task(last(engine, "late 0"))
        left = asyncio.create_task(last(engine, "left"))
        for _ in range(3):
            await engine._in_thread(lambda: None)
        left.cancel()
        await engine.resume_generation()
        first = [one async for one in held][-1]
        assert len(first.outputs[0].token_ids) == 20
        await pause
        waiting = not any(one.done() for one in late) and await engine.is_paused()
        assert engine.llm_engine.stats().num_waiting == 3
        with pytest.raises(InvalidRequestError, match="already running"):
            await same
        await engine.resume_generation()
        return waiting, await asyncio.gather(*late)

    waiting, late = run(flood())
    assert waiting and all(one.finished for one in late)


def test_a_pause_that_is_given_up_lets_everybody_in(engine: AsyncLLM) -> None:
    async def given_up() -> Any:
        held = await begun(engine, "held")
        pause = asyncio.create_task(engine.pause_generation(mode="wait"))
        await engine._in_thread(lambda: None)
        late = asyncio.create_task(last(engine, "late"))
        await engine._in_thread(lambda: None)
        pause.cancel()
        await engine.resume_generation()
        await held.aclose()
        return await late

    assert run(given_up()).finished


def test_who_leaves_before_being_accepted_leaves_the_engine_alone(engine: AsyncLLM) -> None:
    """The engine is in a long job when the one who waits for it is cancelled."""

    async def leave() -> Any:
        entered, goes_on = threading.Event(), threading.Event()

        def long() -> None:
            entered.set()
            goes_on.wait(HANG_S)

        job = asyncio.create_task(engine._in_thread(long))
        await asyncio.to_thread(entered.wait, 30)
        left = asyncio.create_task(last(engine, "left"))
        await asyncio.sleep(0)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        goes_on.set()
        await job
        assert not await engine._in_thread(engine.llm_engine.has_unfinished_requests)
        return await last(engine, "next")

    assert run(leave()).finished


def test_a_shutdown_in_a_pause_tells_all_who_wait(engine: AsyncLLM) -> None:
    async def cut_off() -> list[Any]:
        held = await begun(engine, "held")
        pause = asyncio.create_task(engine.pause_generation(mode="wait"))
        await engine._in_thread(lambda: None)
        late = asyncio.create_task(last(engine, "late"))
        await engine._in_thread(lambda: None)
        engine.shutdown()
        return await asyncio.gather(late, pause, rest(held), return_exceptions=True)

    async def rest(stream: Any) -> None:
        async for _ in stream:  # what came before the pause
            pass

    found = run(cut_off())
    assert [type(one) for one in found] == [RuntimeError] * 3
    assert all("shut down" in str(one) for one in found)


def test_parameters_may_change_after_the_call(engine: AsyncLLM) -> None:
    async def changed() -> tuple[Any, Any]:
        whole = await last(engine, "whole")
        mine = SamplingParams(**vars(PARAMS))
        stream = engine.generate(PROMPT, mine, "changed")
        mine.max_tokens, mine.temperature, mine.seed = 1, 0.0, 9
        return whole, [one async for one in stream][-1]

    whole, found = run(changed())
    assert found.outputs == whole.outputs


def test_an_id_is_free_at_once(engine: AsyncLLM) -> None:
    """Whoever had it before gets its own end, and nobody another's outputs."""

    async def again() -> tuple[Any, Any]:
        stream = engine.generate(PROMPT, PARAMS, "same")
        await anext(stream)
        await engine.abort("same")
        second = await last(engine, "same")
        first = [one async for one in stream][-1]
        left = engine.generate(PROMPT, PARAMS, "same")
        await anext(left)
        closing = asyncio.create_task(left.aclose())
        await closing
        third = await last(engine, "same")
        assert third.outputs == second.outputs
        return first, second

    first, second = run(again())
    assert first.outputs[0].finish_reason == "abort" and len(second.outputs[0].token_ids) == 20
