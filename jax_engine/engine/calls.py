"""Calls of `LLM`: each adds its requests to the loops, from any thread, and waits for its own.

All prompts of a call are checked before the first one starts. A bar shows the progress.

`data_parallel_size` engines that are alike may stand behind one `LLM`. Each engine has a loop on a
thread. The first one's thread also names requests, and says which engine takes them.

A thread may have JAX settings of its own, which the engine's thread does not see. So a call is
refused if its thread's settings are not those of the engine's thread.
"""

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from queue import SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

from jax_engine.checks import shown
from jax_engine.config.engine_config import EngineConfig
from jax_engine.engine.engine_loop import EngineLoop, awaited
from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.request_router import RequestRouter
from jax_engine.engine.requests.prompts import PromptInput
from jax_engine.engine.requests.request import Request, RequestUpdate, check_service, is_last
from jax_engine.errors import ConfigError, EngineDeadError, InvalidRequestError, JaxEngineError
from jax_engine.lora.request import LoRARequest, one_lora_each
from jax_engine.outputs import AnyRequestOutput, RequestOutput
from jax_engine.pooling_params import PoolingParams
from jax_engine.processes.placement import Place, places
from jax_engine.sampling_params import SamplingParams


def jax_settings() -> dict[str, Any]:
    """All settings of JAX as this thread sees them: within `with jax.disable_jit()`, say."""
    return {name: getattr(jax.config, name) for name in _names()}


def check_jax_settings(given: dict[str, Any]) -> None:
    """
    Args:
        given: `jax_settings` of another thread.

    Raises:
        ConfigError: They are not this thread's.
    """
    for name, own in jax_settings().items():
        if given[name] != own:
            raise ConfigError(
                f"{name} is {shown(given[name])} in the thread that calls LLM and {shown(own)} in "
                "the engine's own thread, which computes all calls' steps: leave the context "
                f"manager, or set it for all threads, jax.config.update({name!r}, ..)"
            )


@cache
def _names() -> list[str]:
    return [name for name in jax.config.values if hasattr(jax.config, name)]


type Progress = Callable[[AnyRequestOutput], None]
type UseTqdm = bool | Callable[..., Any]  # whether to show a bar, or a replacement of tqdm


def check_all(
    engine: LLMEngine,
    prompts: Sequence[PromptInput],
    params: Sequence[SamplingParams | PoolingParams],
    priorities: Sequence[int],
    timeouts: Sequence[float | None],
    loras: Sequence[LoRARequest | None] | None = None,
    *,
    use_tqdm: UseTqdm = False,
) -> list[Request]:
    """Checks every prompt; returns the requests, which have no names yet.

    Raises:
        InvalidRequestError: Some are invalid; the message says which, and why.
    """
    engine.check_process()
    for priority, timeout in zip(priorities, timeouts, strict=True):
        check_service(engine.config.scheduling_policy, priority, timeout)
    checked: list[Request] = []
    problems: list[InvalidRequestError] = []
    where: list[int] = []
    each = [None] * len(prompts) if loras is None else loras
    asked = zip(prompts, params, each, strict=True)
    bar = _maker(use_tqdm)(asked, total=len(prompts), desc="Adding requests")
    for i, (prompt, one, lora) in enumerate(bar):
        try:
            checked.append(engine.check_request(prompt, one, lora=lora))
        except InvalidRequestError as error:
            problems.append(error)
            where.append(i)
    if not problems:
        for request, priority, timeout in zip(checked, priorities, timeouts, strict=True):
            request.serve_as("new", priority=priority, timeout=timeout)
        return checked
    texts = [str(error).removeprefix("request 'new': ") for error in problems[:5]]
    lines = [f"prompts[{i}]: {text}" for i, text in zip(where, texts, strict=False)]
    if len(problems) > len(lines):
        lines.append(f"and {len(problems) - len(lines)} more")
    note = f"; none of the {len(prompts)} prompts was started" if len(prompts) > 1 else ""
    raise type(problems[0])("; ".join(lines) + note)


def loras_each(engine: LLMEngine, lora_request: Any, num_prompts: int) -> list[LoRARequest | None]:
    """The adapter of each prompt; arrays become adapters here, once for all prompts.

    Raises:
        InvalidRequestError: They are no adapters, or not as many as there are prompts.
    """
    found: list[LoRARequest | None] = []
    made: dict[int, LoRARequest] = {}
    for one in one_lora_each(lora_request, num_prompts):
        if one is not None and one.lora_tensors is not None:
            if id(one) not in made:
                adapter = engine.read_lora(one)
                made[id(one)] = replace(one, lora_tensors=None, peft_config=None, adapter=adapter)
            one = made[id(one)]
        found.append(one)
    return found


def number_each(name: str, value: Any, num_prompts: int) -> list[Any]:
    """One number for each prompt: the same for all, or those given.

    Raises:
        InvalidRequestError: So many prompts are not so many numbers.
    """
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return [value] * num_prompts
    values = list(value)
    if len(values) != num_prompts:
        raise InvalidRequestError(
            f"{name} must have one number for each of the {num_prompts} prompts, got {len(values)}"
        )
    return values


@contextmanager
def progress_bar(total: int, use_tqdm: UseTqdm) -> Iterator[Progress]:
    """A bar over requests, with the estimated speeds that vLLM shows."""
    with _maker(use_tqdm)(total=total, desc="Processed prompts", dynamic_ncols=True) as bar:
        tokens = {"input": 0, "output": 0}
        started = time.monotonic()

        def advance(output: AnyRequestOutput) -> None:
            tokens["input"] += len(output.prompt_token_ids)
            if isinstance(output, RequestOutput):
                tokens["output"] += sum(len(one.token_ids) for one in output.outputs)
            elapsed = max(time.monotonic() - started, 1e-9)
            speeds = (f"{name}: {count / elapsed:.2f} toks/s" for name, count in tokens.items())
            bar.postfix = "est. speed " + ", ".join(speeds)
            bar.update(1)

        yield advance


def _maker(use_tqdm: UseTqdm) -> Callable[..., Any]:
    return use_tqdm if callable(use_tqdm) else partial(tqdm, disable=not use_tqdm)


def build_engines(config: EngineConfig) -> list[LLMEngine]:
    """`data_parallel_size` engines. Where there are several, their models are in other processes.

    Each has its share of the cores, or GPUs of its own. They start at the same time.

    Raises:
        ConfigError: The machine has too few devices, or the models are asked for in this process.
        JaxEngineError: As `LLMEngine.from_config`, of the first engine that cannot be built.
    """
    count = config.data_parallel_size
    if count == 1:
        return [LLMEngine.from_config(config)]
    if config.distributed_executor_backend == "uni":
        raise ConfigError(
            "distributed_executor_backend must be 'mp' or 'ray' with several engines, whose models "
            f"are in processes of their own (data_parallel_size={count}), got 'uni'"
        )
    backend = config.distributed_executor_backend or "mp"
    each = replace(config, data_parallel_size=1, distributed_executor_backend=backend)

    def build(place: Place) -> LLMEngine:
        return LLMEngine.from_config(each, place)

    # If one of them cannot be built, nobody keeps the others: their processes end.
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(build, places(count, config.world_size)))


class Routes:
    """Which engine has which request.

    Only threads of engines' loops call it: so Ctrl-C, which comes to the main thread, interrupts
    nobody who holds the lock.
    """

    def __init__(self, engines: Sequence[LLMEngine]) -> None:
        blocks = engines[0].scheduler.block_manager
        cached = blocks.num_gpu_blocks * blocks.enable_prefix_caching
        self._router = RequestRouter(len(engines), blocks.block_size, cached)
        self._lock = Lock()

    def choose(self, requests: Iterable[Request]) -> list[int]:
        """The number of each request's engine. The requests have names, which no open one has."""
        with self._lock:
            return [
                self._router.choose(one.request_id, one.prompt.token_ids, one.group.prompt_salt)
                for one in requests
            ]

    def end(self, request_ids: Iterable[str]) -> None:
        """These requests have ended."""
        with self._lock:
            for request_id in request_ids:
                self._router.end(request_id)

    def forget_prefixes(self) -> None:
        """The engines have emptied their prefix caches."""
        with self._lock:
            self._router.forget_prefixes()


class Call:
    """The requests of one call, and what has come of them. One thread waits for it.

    Args:
        routes: Gets to know which requests have ended; None: there is one engine.

    Attributes:
        request_ids: In the order of the prompts.
    """

    def __init__(self, routes: Routes | None = None) -> None:
        self.request_ids: list[str] = []
        self._routes = routes
        self._updates: SimpleQueue[RequestUpdate | JaxEngineError] = SimpleQueue()

    def take(self, updates: list[RequestUpdate]) -> None:
        """As `Reader.take`."""
        if self._routes is not None:
            self._routes.end([request.request_id for request, new in updates if is_last(new)])
        for update in updates:
            self._updates.put(update)

    def fail(self, request_ids: list[str], error: JaxEngineError) -> None:
        """As `Reader.fail`."""
        if self._routes is not None:
            self._routes.end(request_ids)
        self._updates.put(error)

    def next(self) -> AnyRequestOutput:
        """Waits for the next output. Raises what ended the requests without one."""
        update = awaited(self._updates)
        try:
            if isinstance(update, JaxEngineError):
                raise update
            request, new = update
            return request.output(new)
        finally:  # the error's traceback holds this frame, which must not hold the error
            del update

    def last_outputs(self, show: Progress) -> list[AnyRequestOutput]:
        """Waits for the one output of each request; returns them in the order of the prompts."""
        found: dict[str, AnyRequestOutput] = {}
        while len(found) < len(self.request_ids):
            output = self.next()
            found[output.request_id] = output
            show(output)
        return [found[request_id] for request_id in self.request_ids]


class Calls:
    """Engines' loops, each on a thread of its own; they end with this object, or with Python.

    Args:
        engines: They are alike.
    """

    def __init__(self, *engines: LLMEngine) -> None:
        self._loops = [EngineLoop(one) for one in engines]
        self._routes = Routes(engines) if len(engines) > 1 else None
        # Python cuts off daemon threads where they stand: inside a step, that aborts the process.
        # So they are ended before; they have no reference to this object, which could not go else.
        threads = [Thread(target=one.run, name="jax-engine", daemon=True) for one in self._loops]
        for thread in threads:
            thread.start()
        weakref.finalize(self, _end, self._loops, threads)
        # Only the first loop's thread changes these, where no Ctrl-C can interrupt it.
        self._num_requests = 0
        self._enqueued: list[Call] = []

    def of_each[T](self, work: Callable[[LLMEngine], T]) -> list[T]:
        """Lets each engine's thread do this between two steps; returns what they return.

        Raises:
            BaseException: What one of them raises; engines behind it have not done it.
        """
        return [loop.call(partial(work, loop.engine)) for loop in self._loops]

    def reset_prefix_caches(self, reset: Callable[[LLMEngine], bool]) -> bool:
        """Whether each engine has emptied its prefix cache."""
        emptied = self.of_each(reset)
        if self._routes is not None:
            self._loops[0].call(self._routes.forget_prefixes)
        return all(emptied)

    def run(self, requests: Sequence[Request], use_tqdm: UseTqdm) -> list[AnyRequestOutput]:
        """Adds all requests, or none, and waits for them; returns their outputs in this order.

        Whatever interrupts it ends them; other calls go on.

        Raises:
            ConfigError: The thread has settings of JAX that the engine's thread has not.
            StepFailedError: A step failed.
        """
        call = Call(self._routes)
        with self._ending([call]):
            self._add(requests, call)
            return self._last_outputs([call], use_tqdm)

    def stream(self, request: Request) -> Iterator[AnyRequestOutput]:
        """Adds a request and yields its outputs; it ends when nobody reads any more."""
        call = Call(self._routes)
        with self._ending([call]):
            self._add([request], call)
            while not (output := call.next()).finished:
                yield output
        yield output

    def enqueue(self, requests: Sequence[Request]) -> list[str]:
        """Adds all requests, or none, for `wait_enqueued`; returns their ids."""
        call = Call(self._routes)
        with self._ending([call]):
            self._add(requests, call, enqueued=True)
        return call.request_ids

    def wait_enqueued(self, use_tqdm: UseTqdm) -> list[AnyRequestOutput]:
        """As `run`, for all requests since the last time."""
        calls: list[Call] = []

        def take() -> None:
            calls.extend(self._enqueued)
            self._enqueued.clear()

        with self._ending(calls):
            self._loops[0].call(take)
            return self._last_outputs(calls, use_tqdm)

    def _last_outputs(self, calls: Sequence[Call], use_tqdm: UseTqdm) -> list[AnyRequestOutput]:
        total = sum(len(call.request_ids) for call in calls)
        with progress_bar(total, use_tqdm) as show:
            return [output for call in calls for output in call.last_outputs(show)]

    def _add(self, requests: Sequence[Request], call: Call, *, enqueued: bool = False) -> None:
        """Names the requests and accepts them, between two steps.

        If one of several engines does not accept its part, the caller ends those of the others.
        """
        self._check_engines()
        settings, first_loop = jax_settings(), self._loops[0]
        parts: list[list[Request]] = [[] for _ in self._loops]

        def add() -> None:
            check_jax_settings(settings)
            engine, first = first_loop.engine, self._num_requests
            names = [str(first + i) for i in range(len(requests))]
            while any(engine.is_running(one) for one in names):
                first += 1  # a caller of `LLMEngine.add_request` has taken one
                names = [str(first + i) for i in range(len(requests))]
            for request, name in zip(requests, names, strict=True):
                request.group.request_id = name
            self._share_out(requests, first, parts)
            try:
                first_loop.add(parts[0], call)
            except BaseException:
                if self._routes is not None:  # the names are given out again
                    self._routes.end(names)
                raise
            call.request_ids = names
            self._num_requests = first + len(names)
            if enqueued:
                self._enqueued.append(call)

        first_loop.call(add)
        for loop, part in zip(self._loops[1:], parts[1:], strict=True):
            if part:
                loop.call(partial(loop.add, part, call))

    def _share_out(
        self, requests: Sequence[Request], first: int, parts: list[list[Request]]
    ) -> None:
        """Appends each request to the part of its engine. Seeds are those of a single engine."""
        if self._routes is None:
            parts[0] += requests
            return
        for i, (number, request) in enumerate(
            zip(self._routes.choose(requests), requests, strict=True)
        ):
            request.order = first + i
            parts[number].append(request)

    def _check_engines(self) -> None:
        """
        Raises:
            EngineDeadError: One of several engines has ended.
        """
        for number, loop in enumerate(self._loops):
            problem = loop.died or loop.engine.problem()
            if problem is not None and len(self._loops) > 1:
                raise EngineDeadError(f"engine {number}: {problem}")

    @contextmanager
    def _ending(self, calls: Sequence[Call]) -> Iterator[None]:
        """Ends the calls' requests if anything is raised, Ctrl-C for one, and waits for that.

        A second Ctrl-C ends the waiting.
        """
        try:
            yield
        except BaseException:
            for loop in self._loops:  # behind what was asked for and interrupted
                loop.post(partial(self._leave, loop, calls))
            for loop in self._loops:
                with suppress(JaxEngineError):  # it has ended; or this is its own thread
                    loop.call(lambda: None)
            raise

    def _leave(self, loop: EngineLoop, calls: Sequence[Call]) -> None:
        for call in calls:
            loop.leave(call)
            if self._routes is not None:  # some may have come to no engine
                self._routes.end(call.request_ids)
        if loop is self._loops[0]:
            self._enqueued = [one for one in self._enqueued if one not in calls]


def _end(loops: Sequence[EngineLoop], threads: Sequence[Thread]) -> None:
    """Ends the loops, and waits for the steps that run."""
    for loop in loops:
        loop.stop()
    for thread in threads:
        if current_thread() is not thread:
            thread.join()
