"""Something is in flight when an event comes: a death, an id that is used again, a change.

The engine's process is a thread here, so that it can be held, looked at and ended at any moment.
"""

import asyncio
import dataclasses
import gc
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from jax_engine import (
    AsyncLLM,
    ConfigError,
    EngineConfig,
    EngineDeadError,
    InvalidRequestError,
    JaxEngineError,
    LLMEngine,
    OutOfMemoryError,
    PoolingParams,
    RequestOutputKind,
    SamplingParams,
    StepFailedError,
)
from jax_engine.commands.batch_run import ask
from jax_engine.serving.api.app import make_app
from jax_engine.serving.api.service import ServerSettings, Service
from tests.support.engine_in_thread import EngineThread, in_threads
from tests.support.in_process import run as run_all
from tests.support.patience import HANG_S

CUMULATIVE, DELTA, FINAL_ONLY = RequestOutputKind
SETTINGS: dict[str, Any] = {
    "block_size": 4, "max_model_len": 64, "max_num_seqs": 4, "num_gpu_blocks_override": 60,
}  # fmt: skip
LONG = SamplingParams(seed=1, max_tokens=30, ignore_eos=True)
QUESTIONS: dict[str, Callable[[AsyncLLM], Coroutine[Any, Any, Any]]] = {
    "stats": AsyncLLM.get_stats,
    "metrics": AsyncLLM.get_metrics,
    "state": AsyncLLM.get_state,
    "cache": AsyncLLM.reset_prefix_cache,
}


class Held:
    """An engine whose next step waits, once it is held."""

    def __init__(self, llm: AsyncLLM, process: EngineThread) -> None:
        self.llm, self.process = llm, process
        self.in_step, self.may_continue = threading.Event(), threading.Event()
        self.may_continue.set()
        self._free = 0  # steps that wait for nothing, even now
        engine, step = process.engine, process.engine.run_step

        def held() -> None:
            if self._free:
                self._free -= 1
            else:
                self.in_step.set()
                self.may_continue.wait(HANG_S)
            step()

        engine.run_step = held  # type: ignore[method-assign]

    async def hold(self) -> None:
        """Returns once a step waits."""
        self.in_step.clear()
        self.may_continue.clear()
        await asyncio.to_thread(self.in_step.wait, 30)

    async def begin(self, stream: Any) -> None:
        """Reads a stream's first output. The engine, which was idle, waits in its next step."""
        self._free = 1
        self.in_step.clear()
        self.may_continue.clear()
        await anext(stream)
        await asyncio.to_thread(self.in_step.wait, 30)


@pytest.fixture
def held(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    process = in_threads(monkeypatch)
    llm = AsyncLLM(str(checkpoint), **SETTINGS)
    found = Held(llm, process())
    yield found
    found.may_continue.set()
    llm.shutdown()


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, HANG_S))


async def read(stream: Any) -> list[Any]:
    return [one async for one in stream]


@pytest.mark.parametrize("end", ["killed", "shut down"])
def test_who_waits_when_the_engine_ends_is_told(held: Held, end: str) -> None:
    """Streams and questions that are on their way, and those that come afterwards."""
    llm = held.llm

    async def die() -> tuple[list[Any], list[Any]]:
        begun = llm.generate("a", LONG)
        await held.begin(begun)
        waits = [asyncio.create_task(read(begun))]
        waits.append(asyncio.create_task(read(llm.generate("b", LONG))))
        waits.append(asyncio.create_task(read(llm.encode("c"))))
        waits += [asyncio.create_task(one(llm)) for one in QUESTIONS.values()]
        await asyncio.sleep(0.05)
        assert not any(one.done() for one in waits) and llm.num_unfinished_requests == 3
        if end == "killed":
            held.process.kill()
        else:
            threading.Timer(0.1, held.may_continue.set).start()
            llm.shutdown(timeout=30)
        told = await asyncio.gather(*waits, return_exceptions=True)
        late = [read(llm.generate("d")), read(llm.encode("d"))]
        late += [one(llm) for one in QUESTIONS.values()]
        return told, await asyncio.gather(*late, return_exceptions=True)

    why = "signal 9" if end == "killed" else "shut down"
    for found in run(die()):
        assert [type(one) for one in found] == [EngineDeadError] * len(found)
        assert all(why in str(one) for one in found)
    assert llm.num_unfinished_requests == 0 and llm.errored
    assert not llm._engines._open[0]._answers


def test_pages_that_ask_an_engine_that_dies_are_answered(held: Held) -> None:
    app = make_app(Service(held.llm, ServerSettings(names=("tiny",))))
    with TestClient(app, raise_server_exceptions=False) as client:
        assert client.get("/metrics").status_code == 200
        found: list[Any] = []

        def ask() -> None:
            body = {"prompt": "a", "max_tokens": 30, "ignore_eos": True}
            found.append(client.post("/v1/completions", json=body))

        held.may_continue.clear()
        thread = threading.Thread(target=ask)
        thread.start()
        assert held.in_step.wait(HANG_S)
        pages = [threading.Thread(target=lambda: found.append(client.get("/state")))]
        pages[0].start()
        held.process.kill()
        for one in (thread, *pages):
            one.join(HANG_S)
            assert not one.is_alive()
        assert {one.status_code for one in found} <= {500, 503}, [one.text for one in found]
        assert client.get("/health").status_code == 503
        assert client.get("/state").status_code == 503


@pytest.mark.parametrize("error", [OSError("no device"), OutOfMemoryError("a step: no memory")])
def test_a_failing_step_reaches_all_who_ran_as_what_it_is(
    held: Held, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """It reaches them in Python and over HTTP. The log says why, and the engine goes on."""
    llm, app = held.llm, make_app(Service(held.llm, ServerSettings(names=("tiny",))))
    engine, run_step = held.process.engine, held.process.engine._run_step
    body = {"prompt": "a", "max_tokens": 3, "ignore_eos": True}
    kind = type(error) if isinstance(error, JaxEngineError) else StepFailedError

    def fail() -> None:
        engine._run_step = run_step  # type: ignore[method-assign]
        raise error

    async def failed() -> list[Any]:
        engine._run_step = fail  # type: ignore[method-assign]
        await llm.pause_generation()
        streams = llm.generate("a", LONG), llm.generate("b", LONG), llm.encode("c")
        tasks = [asyncio.create_task(read(one)) for one in streams]
        tasks.append(asyncio.create_task(ask(app, "/v1/completions", body)))  # type: ignore[arg-type]
        while (await llm.get_stats())["num_waiting"] < 4:
            await asyncio.sleep(0.001)
        await llm.resume_generation()
        told = await asyncio.gather(*tasks, return_exceptions=True)
        assert len((await read(llm.generate("b", LONG)))[-1].outputs[0].token_ids) == 30
        return told

    *told, (status, answer) = run(failed())
    assert [type(one) for one in told] == [kind] * 3 and all(str(error) in str(one) for one in told)
    assert status == 500 and b"a step failed with this request" in answer
    assert answer.count(b"server_error") == 1 and str(error).encode() not in answer
    assert "4 requests are aborted\n" in caplog.text and f"{kind.__name__}: " in caplog.text
    assert not llm.errored


def test_an_id_may_be_used_again_as_soon_as_its_request_has_ended(held: Held) -> None:
    """Nobody is given what was said to the one who had the id before."""
    llm = held.llm
    short = dataclasses.replace(LONG, max_tokens=5)

    async def again() -> None:
        expected = (await read(llm.generate("b", LONG, "alone")))[-1].outputs
        first = llm.generate("a", short, "same")
        begun = await anext(first)  # the last output, if the engine was fast
        while llm.num_unfinished_requests:  # its end has come, and nobody has read it
            await asyncio.sleep(0.001)
        second = await read(llm.generate("b", LONG, "same"))
        assert len([begun, *await read(first)][-1].outputs[0].token_ids) == 5
        assert second[-1].outputs == expected

        left = llm.generate("a", LONG, "same")
        await held.begin(left)
        await left.aclose()  # its abort waits behind the step
        third = asyncio.create_task(read(llm.generate("b", LONG, "same")))
        await asyncio.sleep(0)
        held.may_continue.set()
        assert (await third)[-1].outputs == expected

        aborted = llm.generate("a", LONG, "same")
        await held.begin(aborted)
        await llm.abort("same")
        with pytest.raises(InvalidRequestError, match="'same' is already running"):
            await read(llm.generate("b", LONG, "same"))  # until the engine says that it has ended
        held.may_continue.set()
        assert (await read(aborted))[-1].outputs[0].finish_reason == "abort"
        assert (await read(llm.generate("b", LONG, "same")))[-1].outputs == expected

    run(again())


def test_an_abort_is_for_the_request_that_has_the_id_now(held: Held) -> None:
    llm = held.llm

    async def abort() -> None:
        left = llm.generate("a", LONG, "same")
        await anext(left)
        await left.aclose()
        stream = llm.generate("b", LONG, "same")
        await anext(stream)
        other = llm.generate("c", LONG, "other")
        await anext(other)
        await llm.abort(["same"])
        assert (await read(stream))[-1].outputs[0].finish_reason == "abort"
        assert (await read(other))[-1].outputs[0].finish_reason == "length"

    run(abort())


CHANGES: dict[str, Any] = {
    "n": 3, "presence_penalty": 2.0, "temperature": 0.0, "top_k": 1, "seed": 9, "max_tokens": 2,
    "stop": ["a", "e", " "], "stop_token_ids": list(range(200)), "min_tokens": 25, "logprobs": None,
    "prompt_logprobs": None, "flat_logprobs": True, "logit_bias": {65: 100.0},
    "allowed_token_ids": [66], "detokenize": False, "skip_special_tokens": False,
    "include_stop_str_in_output": True, "output_kind": DELTA, "truncate_prompt_tokens": 1,
    "ignore_eos": False, "bad_words": ["a"], "use_beam_search": True, "best_of": 4,
}  # fmt: skip
AT_FIRST: dict[str, Any] = {
    "seed": 5, "max_tokens": 30, "logprobs": 1, "prompt_logprobs": 1, "n": 2, "stop": ["\x07"],
    "stop_token_ids": [250], "logit_bias": {97: 1.0}, "bad_words": ["zzz"],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before the first output", "after it"])
def test_parameters_may_change_after_the_call(held: Held, when: str) -> None:
    """Each field, and what is in the lists and dicts that were given."""
    llm = held.llm

    def params() -> SamplingParams:
        given = {k: v.copy() if isinstance(v, list | dict) else v for k, v in AT_FIRST.items()}
        return SamplingParams(**given)

    async def changed() -> tuple[Any, Any]:
        whole = (await read(llm.generate("abc", params())))[-1]
        mine = params()
        stream = llm.generate("abc", mine)
        if when == "after it":
            await anext(stream)
        lists = mine.stop, mine.stop_token_ids, mine.bad_words
        lists[0].append("a"), lists[1].append(97), lists[2].append("a")  # type: ignore[union-attr]
        mine.logit_bias.clear()  # type: ignore[union-attr]
        for name, value in CHANGES.items():
            setattr(mine, name, value)
        return whole, (await read(stream))[-1]

    whole, found = run(changed())
    assert found.outputs == whole.outputs and len(found.outputs) == 2
    assert found.prompt_logprobs == whole.prompt_logprobs is not None


@pytest.mark.slow
def test_parameters_and_prompts_of_an_engine_may_change_once_it_has_them(checkpoint: Path) -> None:
    engine = LLMEngine.from_config(EngineConfig(model=str(checkpoint), **SETTINGS))

    def outputs(change: bool) -> Any:
        mine, prompt = SamplingParams(**AT_FIRST, output_kind=FINAL_ONLY), [97, 98, 99]
        engine.add_request("mine", prompt, mine)
        if change:
            prompt.append(5)
            mine.stop.append("a"), mine.stop_token_ids.append(97)  # type: ignore[union-attr]
            mine.logit_bias.clear()  # type: ignore[union-attr]
            for name, value in CHANGES.items():
                setattr(mine, name, value)
        return run_all(engine)

    [whole], [found] = outputs(False), outputs(True)
    assert found.outputs == whole.outputs and found.prompt_token_ids == [97, 98, 99]


def test_pooling_parameters_may_change_while_the_prompt_is_tokenised(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = held.llm
    monkeypatch.setattr("jax_engine.serving.text_encoder.LONG_TEXT", 3)

    async def changed() -> tuple[Any, Any]:
        [plain] = await read(llm.encode("a long text", PoolingParams(pooling_type="MEAN")))
        mine = PoolingParams(pooling_type="MEAN")
        task = asyncio.create_task(read(llm.encode("a long text", mine)))
        await asyncio.sleep(0)  # its text is now with another thread
        mine.pooling_type, mine.normalize, mine.task = "LAST", False, "token_embed"
        return plain, (await task)[0]

    plain, found = run(changed())
    np.testing.assert_array_equal(found.outputs.data, plain.outputs.data)


@pytest.mark.slow
def test_an_engine_that_nobody_shut_down_is_collected_though_it_is_in_a_cycle(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread collects it: were it to wait for ever, so would all that follow."""
    process = in_threads(monkeypatch)
    llm = AsyncLLM(str(checkpoint), **SETTINGS)
    llm.request_log = lambda *args: print(llm)  # type: ignore[assignment]
    ended = process()
    del llm
    thread = threading.Thread(target=gc.collect, daemon=True)
    thread.start()
    thread.join(HANG_S)
    assert not thread.is_alive() and ended.status is not None


def test_a_process_that_ends_with_its_reason_is_believed(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason may come between the look for a message and the look at the process."""
    in_threads(monkeypatch)
    reads, looks = threading.Event(), threading.Event()

    def refuse(config: Any, place: Any) -> Any:
        reads.set()
        looks.wait(HANG_S)
        raise ConfigError("no room")

    def poll(self: EngineThread) -> int | None:
        if not reads.is_set():
            return None
        looks.set()
        return self.wait(HANG_S)

    monkeypatch.setattr(LLMEngine, "from_config", refuse)
    monkeypatch.setattr(EngineThread, "poll", poll)
    with pytest.raises(ConfigError, match="no room"):
        AsyncLLM(str(checkpoint), **SETTINGS)
