"""Several engines behind one `AsyncLLM` (data_parallel_size).

The engines' processes are threads here, and their engines have no device, but for the last test.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from jax_engine import (
    LLM,
    AsyncLLM,
    ConfigError,
    EngineDeadError,
    InvalidRequestError,
    JaxEngineError,
    LLMEngine,
    LoRARequest,
    SamplingParams,
)
from jax_engine.config.engine_config import EngineConfig
from jax_engine.processes.placement import Place
from jax_engine.serving.api.app import make_app
from jax_engine.serving.api.service import ServerSettings, Service
from jax_engine.serving.stat_loggers import MetricsPage
from tests.support.builders import small_engine
from tests.support.engine_in_thread import EngineThread, in_threads, rest, run_client, stub_engine
from tests.support.in_process import run as run_all
from tests.support.patience import HANG_S

ENGINES = 3
PROMPTS = [[i % 2, 1, i // 2 % 2, i // 4 % 2, 0, 1, i // 8 % 2] for i in range(12)]
SETTINGS: dict[str, Any] = {"skip_tokenizer_init": True, "block_size": 4, "max_model_len": 40}
LONG = SamplingParams(seed=3, max_tokens=20, ignore_eos=True, temperature=2.0, detokenize=False)


class Several:
    """A client of several engines, whose steps can be held.

    Attributes:
        processes: The engines' threads, in the order of their numbers.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        process = in_threads(monkeypatch)
        monkeypatch.setattr(LLMEngine, "from_config", lambda config, place: stub_engine())
        self.llm = AsyncLLM("stub", data_parallel_size=ENGINES, **SETTINGS | settings)
        clients = self.llm._engines._clients
        self.processes: list[EngineThread] = [process(one._folder) for one in clients]
        self._waits = [_Waits(one) for one in self.processes]

    async def last(self, prompt: list[int], name: str | None = None, **given: Any) -> Any:
        return [one async for one in self.llm.generate(prompt, LONG, name, **given)][-1]

    async def begun(self) -> list[Any]:
        """A stream of each engine, which has had its first output and waits for a command."""
        for one in self._waits:
            one.begin()
        streams = [self.llm.generate(PROMPTS[i], LONG, f"held {i}") for i in range(ENGINES)]
        for one in streams:
            await anext(one)
        return streams

    async def held(self) -> list[Any]:
        """The streams of `begun`; no engine steps any more."""
        streams = await self.begun()
        await self.llm.pause_generation(mode="keep")
        assert self.llm.num_open_requests == [1] * ENGINES
        return streams


class _Waits:
    """Makes an engine's second step, after `begin`, wait for the next command."""

    def __init__(self, process: EngineThread) -> None:
        self._left, self._command = 0, threading.Event()
        self._lock = threading.Lock()  # a step is not taken between a post and what it sets
        self._post, self._run_step = process.loop.post, process.engine._run_step
        process.loop.post, process.engine._run_step = self._hear, self._step  # type: ignore[method-assign]

    def begin(self) -> None:
        self._left = 2

    def _hear(self, work: Any) -> None:
        with self._lock:
            self._post(work)
            self._command.set()

    def _step(self) -> None:
        if self._left == 2:
            with self._lock:
                self._command.clear()
        elif self._left == 1:
            self._command.wait(HANG_S)
        self._left -= 1
        self._run_step()


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch) -> Iterator[Several]:
    found = Several(monkeypatch)
    yield found
    found.llm.shutdown()


def test_answers_are_those_of_one_engine_and_all_engines_give_some(several: Several) -> None:
    async def ask() -> list[Any]:
        return await asyncio.gather(*map(several.last, PROMPTS))

    expected = small_engine(has_text=False)
    for number, prompt in enumerate(PROMPTS):
        expected.add_request(str(number), {"prompt_token_ids": prompt}, LONG)
    wanted = {one.request_id: one for one in run_all(expected)}
    found = run_client(ask())
    for number, one in enumerate(found):
        assert one.outputs[0].token_ids == wanted[str(number)].outputs[0].token_ids
    assert len({one.request_id for one in found}) == len(PROMPTS)
    steps = [one.engine.stats().num_tokens for one in several.processes]
    assert all(steps), "each engine has computed some"
    assert several.llm.num_unfinished_requests == 0


def test_prompts_that_share_their_beginning_share_an_engine(several: Several) -> None:
    async def ask() -> list[int]:
        found = []
        for number in range(6):
            shared = [number % 2] * 16
            found.append((await several.last([*shared, 0, 1], str(number))).num_cached_tokens)
        return found

    assert run_client(ask()) == [0, 0, 16, 16, 16, 16]


def test_an_id_is_free_on_no_engine_while_it_runs_on_one(several: Several) -> None:
    async def twice() -> None:
        streams = await several.held()
        for number in range(ENGINES):
            with pytest.raises(InvalidRequestError, match="already running"):
                await several.last(PROMPTS[9], f"held {number}")
        await several.llm.abort(["held 1", "nobody"])
        await several.llm.resume_generation()
        ended = [await rest(one) for one in streams]
        reasons = [one.outputs[0].finish_reason for one in ended]
        assert reasons == ["length", "abort", "length"]
        assert (await several.last(PROMPTS[9], "held 0")).finished

    run_client(twice())


def test_an_engine_s_death_is_an_error_of_its_requests_and_then_of_health(several: Several) -> None:
    llm = several.llm
    service = Service(llm, ServerSettings(names=("stub",)))

    async def die() -> list[Any]:
        streams = await several.held()
        with TestClient(make_app(service)) as client:
            assert client.get("/health").status_code == 200
        several.processes[1].kill()
        with pytest.raises(EngineDeadError, match="signal 9"):
            await rest(streams[1])
        assert llm.engines_alive == [True, False, True]
        with TestClient(make_app(service)) as client:
            assert client.get("/health").status_code == 503
        with pytest.raises(EngineDeadError, match=r"^engine 1: .*signal 9"):
            await several.last(PROMPTS[5])
        with pytest.raises(EngineDeadError):
            await llm.check_health()
        for one in (0, 2):
            await llm._engines._open[one].resume()
        return [await rest(streams[0]), await rest(streams[2])]

    assert [one.outputs[0].finish_reason for one in run_client(die())] == ["length", "length"]
    assert llm.errored and "signal 9" in str(llm.dead_error)


def test_each_engine_has_its_metrics(several: Several) -> None:
    async def ask() -> tuple[list[Any], str]:
        streams = await several.held()
        page = (await MetricsPage(several.llm, "mine", {}).text()).decode()
        found = await several.llm.get_metrics()
        await several.llm.resume_generation()
        for one in streams:
            await rest(one)
        return found, page

    metrics, page = run_client(ask())
    running = [one for one in metrics if one["name"] == "vllm:num_requests_running"]
    assert [(one["labels"]["engine"], one["value"]) for one in running] == [
        (str(number), 1) for number in range(ENGINES)
    ]
    names = Counter((one["name"], str(sorted(one["labels"].items()))) for one in metrics)
    assert set(names.values()) == {1}, "no two metrics of one name have the same labels"
    for number in range(ENGINES):
        labels = f'engine="{number}",model_name="mine"'
        assert f"vllm:num_requests_running{{{labels}}} 1.0" in page
        labels = f'model_name="mine",engine="{number}"'
        assert f"jax_engine:num_requests_open{{{labels}}} 1.0" in page or (
            f'jax_engine:num_requests_open{{engine="{number}",model_name="mine"}} 1.0' in page
        )


def test_each_engine_has_its_state(several: Several) -> None:
    async def ask() -> list[Any]:
        streams = await several.held()
        found = [await several.llm.get_state(number) for number in range(ENGINES)]
        assert (await several.llm.get_state())["map"] == found[0]["map"]
        for number in (-1, ENGINES):
            with pytest.raises(InvalidRequestError, match=rf"engine must be .* 2, got {number}"):
                await several.llm.get_state(number)
        await several.llm.resume_generation()
        for one in streams:
            await rest(one)
        return found

    states = run_client(ask())
    requests = [[one["request_id"] for one in state["map"]["requests"]] for state in states]
    assert requests == [["held 0"], ["held 1"], ["held 2"]]


@pytest.mark.parametrize("mode", ["abort", "wait", "keep"])
def test_a_pause_is_one_of_all_engines(several: Several, mode: Any) -> None:
    llm = several.llm

    async def pause() -> list[Any]:
        streams = await several.begun()
        await llm.pause_generation(mode=mode, clear_cache=True)
        assert all(one.loop.paused for one in several.processes)
        stats = await llm.get_stats_of_engines()
        held = [one["num_running"] for one in stats]
        assert held == [1 if mode == "keep" else 0] * ENGINES
        cached = [one["num_cached_blocks"] for one in stats]
        assert all(cached) if mode == "keep" else not any(cached)
        await llm.resume_generation()
        assert not any(one.loop.paused for one in several.processes)
        return [await rest(one) for one in streams]

    reasons = {one.outputs[0].finish_reason for one in run_client(pause())}
    assert reasons == {"abort" if mode == "abort" else "length"}


@pytest.mark.parametrize("event", ["cancelled", "an engine dies"])
def test_a_pause_that_fails_leaves_no_engine_paused(several: Several, event: str) -> None:
    """One engine has answered by then; another waits until its request has finished."""
    llm = several.llm

    async def fail() -> Any:
        streams = await several.begun()
        await llm._engines._open[0].pause("keep", False)  # its request stays, and no step runs
        await llm.get_stats()  # a command: the others go on
        for one in streams[1:]:
            await rest(one)
        pause = asyncio.create_task(llm.pause_generation(mode="wait"))
        while not all(several.processes[one].loop.paused for one in (1, 2)):
            await llm.get_stats()
        for _ in range(3):
            await llm.get_stats()
        assert not pause.done()
        if event == "cancelled":
            pause.cancel()
            with pytest.raises(asyncio.CancelledError):
                await pause
        else:
            several.processes[0].kill()
            with pytest.raises(EngineDeadError):
                await pause
        for one in (1, 2):
            await llm._engines._open[one].ask("stats")
        return [one.loop.paused for one in several.processes[1:]], await llm.is_paused()

    assert run_client(fail()) == ([False, False], False)


def test_an_adapter_is_loaded_into_every_engine_or_into_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    several = Several(monkeypatch, enable_lora=True)
    loaded: dict[int, set[int]] = {number: set() for number in range(ENGINES)}
    broken = [2]

    def engine_of(number: int, engine: LLMEngine) -> None:
        def load(request: LoRARequest) -> tuple[bool, str]:
            if number in broken:
                raise InvalidRequestError("the file is torn")
            new = request.lora_int_id not in loaded[number]
            loaded[number].add(request.lora_int_id)
            return new, "digest"

        def remove(lora_id: int) -> bool:
            there = lora_id in loaded[number]
            loaded[number].discard(lora_id)
            return there

        monkeypatch.setattr(engine, "load_lora", load)
        monkeypatch.setattr(engine, "remove_lora", remove)
        monkeypatch.setattr(engine, "list_loras", lambda: loaded[number])
        monkeypatch.setattr(engine, "pin_lora", lambda lora_id: lora_id in loaded[number])

    for number, process in enumerate(several.processes):
        engine_of(number, process.engine)
    lora = LoRARequest("one", 1, "/nowhere")

    async def load() -> None:
        llm = several.llm
        with pytest.raises(InvalidRequestError, match="torn"):
            await llm.add_lora(lora)
        assert loaded == {0: set(), 1: set(), 2: set()}
        broken.clear()
        assert await llm.load_lora(lora) == LoRARequest("one", 1, "/nowhere", digest="digest")
        assert await llm.add_lora(lora) is False
        assert await llm.list_loras() == {1} and await llm.pin_lora(1)
        loaded[1].clear()
        broken.append(2)
        with pytest.raises(InvalidRequestError, match="torn"):
            await llm.add_lora(lora)
        assert loaded == {0: {1}, 1: set(), 2: {1}}, "who had it keeps it"
        assert await llm.list_loras() == set() and not await llm.pin_lora(1)
        assert await llm.remove_lora(1) and not await llm.remove_lora(1)

    try:
        run_client(load())
    finally:
        several.llm.shutdown()


def test_no_engine_is_left_when_one_cannot_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    process, built = in_threads(monkeypatch), list[EngineThread]()

    def build(config: Any, place: Place) -> LLMEngine:
        built.append(process())
        if len(built) == 2:
            raise ConfigError("block_size is odd")
        return stub_engine()

    monkeypatch.setattr(LLMEngine, "from_config", build)
    with pytest.raises(ConfigError, match="block_size is odd"):
        AsyncLLM("stub", data_parallel_size=2, **SETTINGS)
    assert len(built) == 2
    for one in built:
        assert one.wait(HANG_S) is not None


@pytest.mark.parametrize("size", [0, -1, 1025, 2.5, "2", None])
def test_sizes_that_are_none(size: Any) -> None:
    with pytest.raises(ConfigError, match="data_parallel_size"):
        AsyncLLM("stub", data_parallel_size=size)


def test_an_engine_is_one() -> None:
    with pytest.raises(ConfigError, match=r"data_parallel_size.*AsyncLLM.*must be 1, got 2"):
        LLMEngine.from_config(EngineConfig(model="stub", data_parallel_size=2))


@pytest.mark.slow
def test_processes(checkpoint: Path) -> None:
    """Two interpreters, each on its own cores; one is killed, and nothing is left of either."""
    settings: dict[str, Any] = {"block_size": 4, "max_model_len": 64, "max_num_seqs": 4}
    settings |= {"num_gpu_blocks_override": 60, "dtype": "float32"}
    params = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
    prompts = [f"{name}, where?" for name in ("Ada", "Bob", "Eve", "Max")]
    expected = LLM(str(checkpoint), **settings).generate(prompts, params, use_tqdm=False)
    llm = AsyncLLM(str(checkpoint), data_parallel_size=2, **settings)

    async def ask() -> list[Any]:
        async def last(prompt: str) -> Any:
            return [one async for one in llm.generate(prompt, params)][-1]

        found = await asyncio.gather(*map(last, prompts))
        tokens = [one["num_tokens"] for one in await llm.get_stats_of_engines()]
        assert len(set(llm.engine_pids)) == 2 and all(tokens)
        llm._engines._clients[0]._process.kill()
        with pytest.raises(JaxEngineError, match="signal 9"):
            while True:
                await last("Ada, again?")
        return found

    try:
        found = run_client(ask())
    finally:
        llm.shutdown()
    assert [one.outputs[0].text for one in found] == [one.outputs[0].text for one in expected]
    for pid in llm.engine_pids:
        assert not Path(f"/proc/{pid}").exists()
