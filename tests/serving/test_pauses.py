"""Pauses of `AsyncLLM` while something is in flight.

The engine's process is a thread here, and its engine has no device. Commands arrive in order, so
whoever has the answer to a question knows that the engine has taken all that was sent before it.
"""

import asyncio
import gc
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from jax_engine import (
    AsyncLLM,
    EngineDeadError,
    InvalidRequestError,
    LLMEngine,
    SamplingParams,
    StepFailedError,
)
from tests.support.engine_in_thread import in_threads, rest, run_client, stub_engine
from tests.support.patience import HANG_S

PROMPT = [0, 1, 1, 0, 1, 0, 0, 0, 1]  # two blocks of 4, and one token more
PARAMS = SamplingParams(seed=3, max_tokens=20, ignore_eos=True, temperature=2.0, detokenize=False)


class Paused:
    """A client, and an engine whose steps are counted, and wait for a command where they are told.

    Attributes:
        steps: How many there were.
        fails: What the next step raises.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        process = in_threads(monkeypatch)
        monkeypatch.setattr(LLMEngine, "from_config", lambda config, place: stub_engine())
        self.llm = AsyncLLM("stub", skip_tokenizer_init=True, block_size=4, max_model_len=40)
        engine, loop = process().engine, process().loop
        self.steps, self.fails, self._last = 0, list[Exception](), 0
        self._command, self._post, self._run_step = threading.Event(), loop.post, engine._run_step
        loop.post, engine._run_step = self._hear, self._step  # type: ignore[method-assign]

    def _hear(self, work: Any) -> None:
        self._post(work)
        self._command.set()

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self._last - 1:
            self._command.clear()
        if self.steps == self._last:
            self._command.wait(HANG_S)
        if self.fails:
            raise self.fails.pop()
        self._run_step()

    async def last(self, name: str) -> Any:
        return [one async for one in self.llm.generate(PROMPT, PARAMS, name)][-1]

    async def begun(self) -> Any:
        """A stream that has had its first output; its second step waits for the next command."""
        self._last = self.steps + 2
        stream = self.llm.generate(PROMPT, PARAMS, "begun")
        await anext(stream)
        return stream

    async def taken(self, task: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """The task, once the engine has taken what it sent."""
        started = asyncio.create_task(task)
        await asyncio.sleep(0)
        await self.llm.get_stats()
        return started


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> Iterator[Paused]:
    found = Paused(monkeypatch)
    yield found
    found.llm.shutdown()


def test_i36_a_pause_that_keeps_changes_nothing_and_keeps_the_cache(paused: Paused) -> None:
    llm = paused.llm

    async def keep() -> tuple[Any, Any, Any]:
        whole = await paused.last("whole")
        stream = await paused.begun()
        await llm.pause_generation(mode="keep")
        late = await paused.taken(paused.last("late"))
        steps, stats = paused.steps, await llm.get_stats()
        assert await llm.is_paused() and stats["num_waiting"] == 1
        assert stats["num_used_blocks"] > 0 and stats["num_cached_blocks"] >= 2
        await llm.get_stats()
        assert paused.steps == steps <= paused._last and not late.done()
        await llm.resume_generation()
        assert not await llm.is_paused()
        return whole, await rest(stream), await late

    whole, through, after = run_client(keep())
    assert through.outputs[0].token_ids == whole.outputs[0].token_ids
    assert (whole.num_cached_tokens, through.num_cached_tokens) == (0, 8)
    assert after.num_cached_tokens == 8 and after.outputs == whole.outputs


@pytest.mark.parametrize("mode", ["abort", "wait", "keep"])
@pytest.mark.parametrize("clear_cache", [True, False])
@pytest.mark.parametrize("busy", [True, False])
def test_what_is_left_of_requests_and_cache(
    paused: Paused, mode: Any, clear_cache: bool, busy: bool
) -> None:
    llm = paused.llm

    async def pause() -> Any:
        await paused.last("before")
        stream = await paused.begun() if busy else None
        await llm.pause_generation(mode=mode, clear_cache=clear_cache)
        cleared = (await llm.get_stats())["num_cached_blocks"] == 0
        assert cleared == (clear_cache and mode != "keep")
        steps, reading = paused.steps, asyncio.create_task(rest(stream)) if busy else None
        if reading is not None and mode != "keep":
            output = (await reading).outputs[0]
            assert output.finish_reason == {"abort": "abort", "wait": "length"}[mode]
            assert (len(output.token_ids) == 20) == (mode == "wait")
        assert paused.steps == steps
        await llm.resume_generation()
        return await paused.last("after"), reading and await reading

    after, _ = run_client(pause())
    assert after.num_cached_tokens == (0 if clear_cache and mode != "keep" else 8)
    assert len(after.outputs[0].token_ids) == 20


def test_who_comes_while_others_are_waited_for_does_not_delay_the_pause(paused: Paused) -> None:
    """Neither do two callers that wait for it, one that leaves, and one that is aborted."""
    llm = paused.llm

    async def flood() -> list[Any]:
        stream = await paused.begun()
        await llm.pause_generation(mode="keep")  # so that all come before it has ended
        pauses = [await paused.taken(llm.pause_generation(mode="wait")) for _ in range(2)]
        late = [await paused.taken(paused.last(f"late {i}")) for i in range(3)]
        left = await paused.taken(paused.last("left"))
        left.cancel()
        aborted = await paused.taken(paused.last("aborted"))
        assert not any(one.done() for one in (*pauses, *late, aborted))
        await llm.abort("aborted")
        assert (await aborted).outputs[0].finish_reason == "abort"
        assert not pauses[0].done()
        await llm.resume_generation()
        await asyncio.gather(*pauses)
        assert len((await rest(stream)).outputs[0].token_ids) == 20
        assert await llm.is_paused() and not any(one.done() for one in late)
        assert (await llm.get_stats())["num_waiting"] == 3
        await llm.resume_generation()  # one is enough
        return await asyncio.gather(*late)

    assert all(len(one.outputs[0].token_ids) == 20 for one in run_client(flood()))


def test_a_request_that_waits_behind_a_pause_may_be_aborted(paused: Paused) -> None:
    async def abort() -> Any:
        await paused.llm.pause_generation()
        waits = await paused.taken(paused.last("waits"))
        await paused.llm.abort("waits")
        output = await waits
        assert await paused.llm.is_paused() and paused.steps == 0
        return output

    assert run_client(abort()).outputs[0].finish_reason == "abort"


def test_a_pause_that_is_given_up_lets_everybody_in(paused: Paused) -> None:
    async def give_up() -> Any:
        stream = await paused.begun()
        await paused.llm.pause_generation(mode="keep")
        pause = await paused.taken(paused.llm.pause_generation(mode="wait"))
        late = await paused.taken(paused.last("late"))
        pause.cancel()
        await paused.llm.resume_generation()
        assert len((await rest(stream)).outputs[0].token_ids) == 20
        return await late

    assert run_client(give_up()).finished


@pytest.mark.parametrize("mode", ["abort", "wait", "keep"])
@pytest.mark.parametrize("another", ["before", "after", "ended", None])
def test_a_pause_may_be_given_up_in_the_moment_it_has_begun(
    paused: Paused, mode: Any, another: str | None
) -> None:
    """The engine hears of it behind its answer. A pause that somebody else has asked for stays."""
    llm, requests = paused.llm, paused.llm._engines._open[0]
    take = requests._take_answer

    async def give_up() -> Any:
        if another in ("before", "ended"):
            await llm.pause_generation(mode="keep")
        if another == "ended":
            await llm.resume_generation()
        pause = asyncio.create_task(llm.pause_generation(mode=mode))

        def cancelled(answer: Any) -> None:
            requests._take_answer = take  # type: ignore[method-assign]
            take(answer)
            pause.cancel()

        requests._take_answer = cancelled  # type: ignore[method-assign]
        await asyncio.sleep(0)
        if another == "after":
            await llm.pause_generation(mode="keep")
        with pytest.raises(asyncio.CancelledError):
            await pause
        late = await paused.taken(paused.last("late"))
        if another in ("before", "after"):
            for _ in range(3):  # steps would run between the answers
                await llm.get_stats()
            assert await llm.is_paused() and paused.steps == 0
            await llm.resume_generation()
        assert not await llm.is_paused()
        return await late

    assert run_client(give_up()).finished


@pytest.mark.parametrize("end", ["killed", "shut down"])
def test_who_waits_in_a_pause_when_the_engine_ends_is_told(paused: Paused, end: str) -> None:
    llm, odd = paused.llm, list[Any]()

    async def die() -> list[Any]:
        asyncio.get_running_loop().set_exception_handler(lambda loop, what: odd.append(what))
        stream = await paused.begun()
        await llm.pause_generation(mode="keep")
        tasks = [await paused.taken(llm.pause_generation(mode="wait")) for _ in range(2)]
        tasks += [await paused.taken(paused.last("late")), asyncio.create_task(rest(stream))]
        if end == "killed":
            llm._engines._clients[0]._process.kill()
        else:
            llm.shutdown()
            tasks[0].cancel()  # nobody is there who could be told so
        found = await asyncio.gather(*tasks, return_exceptions=True)
        at_work = asyncio.all_tasks()
        for late in (llm.pause_generation(), llm.resume_generation()):
            with pytest.raises(EngineDeadError):
                await late
        assert asyncio.all_tasks() <= at_work, "an engine that has ended is listened to"
        return found

    found = run_client(die())
    gc.collect()
    assert not odd, "a task of the client's failed, and nobody was told"
    if end == "shut down":
        assert isinstance(found.pop(0), asyncio.CancelledError)
    assert [type(one) for one in found] == [EngineDeadError] * len(found)
    why = {"killed": "signal 9", "shut down": "shut down"}[end]
    assert all(why in str(one) for one in found)


def test_a_step_that_fails_begins_the_pause_that_waited(paused: Paused) -> None:
    """It reaches all who ran, and nobody who came later."""
    llm = paused.llm

    async def fail() -> tuple[Any, Any]:
        stream = await paused.begun()
        await llm.pause_generation(mode="keep")
        other = await paused.taken(paused.last("other"))
        pause = await paused.taken(llm.pause_generation(mode="wait"))
        late = await paused.taken(paused.last("late"))
        paused.fails.append(OSError("the device is gone"))
        await llm.resume_generation()
        await pause
        assert await llm.is_paused() and not late.done()
        await llm.resume_generation()
        told = await asyncio.gather(rest(stream), other, return_exceptions=True)
        return told, await late

    told, late = run_client(fail())
    assert late.finished and [type(one) for one in told] == [StepFailedError] * 2
    assert all("device is gone" in str(one) for one in told)


def test_there_are_three_modes(paused: Paused) -> None:
    with pytest.raises(InvalidRequestError, match="mode must be 'abort', 'wait' or 'keep', got"):
        run_client(paused.llm.pause_generation(mode="sleep"))  # type: ignore[arg-type]
    assert run_client(paused.last("next")).finished
