"""The loop that ties everything together: add_request, step, abort_request.

A step schedules, executes on the device, and processes the outputs while the device computes the
next step (`pipeline`). All state of a request is found by its id, so an abort between two steps
frees exactly what it held. One thread at a time uses it: `EngineLoop` drives it for many.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial, wraps
from pathlib import Path
from threading import RLock, get_ident
from typing import Any, Concatenate, Self

from jax_engine.config.engine_args import EngineArgs
from jax_engine.config.engine_config import EngineConfig
from jax_engine.config.reasoning_config import ReasoningConfig
from jax_engine.config.reasoning_markers import ReasoningMarkers
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.engine.engine_state import EngineState, engine_state
from jax_engine.engine.pipeline import (
    StepPipeline,
    sampled_rows,
    sampled_tokens,
    take_prompts,
    take_step,
)
from jax_engine.engine.pooling.pooling import PooledParams, as_sampling_params
from jax_engine.engine.requests.prompts import PromptInput
from jax_engine.engine.requests.request import (
    Request,
    RequestChecks,
    RequestUpdate,
    check_request_id,
    check_service,
    outputs_of,
)
from jax_engine.engine.running_requests import RunningRequests
from jax_engine.engine.startup.build import EngineParts, build_engine
from jax_engine.engine.startup.build_speculator import build_speculator, most_rows
from jax_engine.engine.stats import (
    EngineStats,
    Metric,
    StatsRecorder,
    cache_config_info,
    lora_requests_info,
    lora_slots,
)
from jax_engine.engine.vllm_parts import request_processor, save_state, vllm_config
from jax_engine.errors import ConfigError, EngineInUseError, ForkedProcessError, InvalidRequestError
from jax_engine.kv_store.stored_blocks import stored_blocks
from jax_engine.lora.adapted_leaves import check_of
from jax_engine.lora.adapter import Adapter
from jax_engine.lora.adapter_registry import AdapterRegistry
from jax_engine.lora.adapter_templates import TokenizerCheck
from jax_engine.lora.modules import modules_of
from jax_engine.lora.request import LoRARequest, checked_lora, no_lora
from jax_engine.outputs import AnyRequestOutput
from jax_engine.pooling_params import PoolingParams
from jax_engine.processes.placement import ANYWHERE, Place
from jax_engine.sampling_params import SamplingParams
from jax_engine.speculation.speculator import MAX_DRAFT_TOKENS
from jax_engine.tokenization.tokenizer import Tokenizer

logger = logging.getLogger("jax_engine")


def _alone[**P, T](
    method: Callable[Concatenate["LLMEngine", P], T],
) -> Callable[Concatenate["LLMEngine", P], T]:
    """Makes a method wait for other threads' methods; it is refused while another thread drives.

    The check that counts is made with the lock held: a driver may come while a thread waits for it.
    The one before spares a thread that wait for what a driver does between two steps.

    Raises:
        ForkedProcessError: As `LLMEngine.check_process`.
        EngineInUseError: A call of `LLM` runs in another thread.
    """

    @wraps(method)
    def alone(self: "LLMEngine", /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.check_process()
        if self.driver == get_ident():  # without the lock, so that others need not wait for it
            return method(self, *args, **kwargs)
        self._check_driver()
        with self._lock:
            self._check_driver()
            return method(self, *args, **kwargs)

    return alone


class LLMEngine:
    """One model, one KV cache, any number of requests, for one thread.

    All methods raise ForkedProcessError in a process that was forked from the engine's, and
    EngineInUseError while a call of `LLM` runs in another thread.

    Attributes:
        clock: Returns the time in seconds; `time.monotonic` unless a test replaces it.
        driver: The thread that runs requests for others, as `EngineLoop`'s does; None while there
            are none of those.
    """

    def __init__(self, parts: EngineParts) -> None:
        self.config = parts.config
        self.model_config = parts.model_config
        self.model_source = parts.model_source
        self.head, self.embeds = parts.head, parts.embeds
        self.memory = parts.memory
        self.scheduler = parts.scheduler
        self.worker, self._draft = parts.worker, parts.draft
        self._client = parts.client
        self._publisher, self._kv_events = parts.publisher, None
        if self._publisher is not None:
            self._kv_events = self.scheduler.block_manager.record_events()
        self._stored = stored_blocks(parts.store, parts.mover, self.scheduler.block_manager)
        self.tokenizer: Tokenizer | None = parts.tokenizer
        self.max_model_len = parts.max_model_len
        self.clock: Callable[[], float] = time.monotonic
        vocab_size, eos = parts.model_config.vocab_size, parts.eos_token_ids
        self._checks = RequestChecks(
            self.tokenizer,
            vocab_size,
            self.max_model_len,
            eos,
            self.config.max_logprobs,
            self.config.speculative_config,
            parts.model_config.spec.token_types or 0,
            self._reasoning(),
            self.embeds,
        )
        self.text_length = self._checks.text_length
        self._adapters = AdapterRegistry(
            parts.modules or partial(modules_of, parts.model_config),
            self.config.max_lora_rank,
            self.config.num_cpu_loras,
            check=None
            if parts.modules
            else check_of(parts.model_config, self.config.max_lora_rank),
            check_folder=None if self.tokenizer is None else TokenizerCheck(self.tokenizer, eos),
        )
        self._pid = os.getpid()
        self.driver: int | None = None
        # `with` enters and leaves it in C, so no signal's handler can raise in between.
        self._lock = RLock()
        self._unread: list[RequestUpdate] = []
        self._stats = StatsRecorder(self.scheduler, parts.store)
        self._pipeline = StepPipeline(
            self.scheduler,
            self.worker,
            look_ahead=self.config.overlaps_steps,
            speculator=build_speculator(parts),
            stored=self._stored,
        )
        speculation, seed = self.config.speculative_config, self.config.seed
        drafts = (speculation and speculation.num_speculative_tokens) or 0
        self._running = RunningRequests(self.scheduler, self._pipeline, eos, seed, drafts)

    def _reasoning(self) -> ReasoningMarkers | None:
        """What the model writes around its reasoning, as settings or its template say."""
        chat = None if self.tokenizer is None else self.tokenizer.chat
        given = self.config.reasoning_config or ReasoningConfig()
        return given.markers(None if chat is None else chat.chosen(None, with_tools=False))

    @classmethod
    def from_config(cls, config: EngineConfig, place: Place = ANYWHERE) -> Self:
        """Builds an engine from its settings.

        Args:
            place: As for `build_engine`.

        Raises:
            ConfigError, ModelNotFoundError, WeightsError, OutOfMemoryError: As the message says.
        """
        engine = cls(build_engine(config, place))
        if config.warmup:
            engine.warmup()
        return engine

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs, **others: Any) -> Self:
        """`from_config` for vLLM's callers; what else they give is about its processes."""
        return cls.from_config(engine_args.create_engine_config())

    def problem(self) -> str | None:
        """Why the process of its runner has ended; None while it runs, or if there is none."""
        return None if self._client is None else self._client.problem()

    def check_process(self) -> None:
        """
        Raises:
            ForkedProcessError: This process is a fork of the one that built the engine.
        """
        if os.getpid() != self._pid:
            raise ForkedProcessError(
                f"the engine of process {self._pid} cannot be used in process {os.getpid()}, a "
                "fork of it: JAX's threads are not in a fork, which would hang. Build an engine "
                'in the child, started with multiprocessing.get_context("spawn")'
            )

    @contextmanager
    def driven(self) -> Iterator[None]:
        """For a driver: inside, no other thread uses the engine. Waits while one does.

        A driver sets and unsets `driver` in here, and runs steps outside: while it is set, a call
        of another thread is refused, so none waits for a step.
        """
        with self._lock:
            if self.driver is None:  # what came before is not for those whom it serves
                self._unread += self._running.take_updates()
            yield

    def _check_driver(self) -> None:
        """Raises EngineInUseError if another thread drives the engine."""
        driver = self.driver  # once: it may change at any time
        if driver is not None and driver != get_ident():
            raise EngineInUseError(
                "a call of LLM runs, and its thread alone may use llm_engine: wait for the call, "
                "or ask LLM, whose methods any thread may call"
            )

    @_alone
    def warmup(self, *, use_tqdm: bool = True) -> int:
        """Compiles the steps of plain requests (see docs/startup.md for others); returns how many.

        Compiled steps stay in the persistent cache: the next process only loads them.
        """
        rows = most_rows(self.config, self.worker.capabilities.max_samples)
        limits = self.scheduler.max_num_batched_tokens, rows
        count = self.worker.compile_ahead(*limits, use_tqdm=use_tqdm)
        if self._draft is not None:
            limits = self._draft.budget, MAX_DRAFT_TOKENS
            count += self._draft.runner.compile_ahead(*limits, use_tqdm=use_tqdm)
        return count

    def check_request(
        self,
        prompt: PromptInput,
        params: SamplingParams | PoolingParams | None = None,
        request_id: str = "new",
        lora: LoRARequest | None = None,
    ) -> Request:
        """Parses and validates a request without accepting it; reads its adapter if need be.

        Returns:
            A request that `add_all` can accept once.

        Raises:
            InvalidRequestError: The prompt or a parameter does not suit this model.
            RequestTooLargeError: It could never run in this engine.
        """
        self.check_process()  # no lock: requests are checked while others run
        given = SamplingParams() if params is None else params
        params = self.with_processors(as_sampling_params(given, self.model_config, self.head))
        adapter = None if lora is None else self.read_lora(lora)
        if adapter is not None and lora is not None and self._publisher is not None:
            self._publisher.name_adapter(adapter.digest, lora.lora_name)
        request = self._checks.check(request_id, prompt, params, lora, adapter)
        self.scheduler.check_group(request.group)
        return request

    def read_lora(self, lora_request: LoRARequest) -> Adapter:
        """The adapter of a request, from the host's memory or its files; any thread may ask.

        `LoRARequest(name, id, adapter=...)` takes what it returns.

        Raises:
            InvalidRequestError: The engine takes no adapters; or this one cannot be read, does not
                suit the model, or has too high a rank.
        """
        self._check_takes(lora_request)
        return self._adapters.adapter(lora_request)

    def _check_takes(self, lora_request: LoRARequest) -> None:
        """Raises InvalidRequestError if the engine takes no adapters."""
        name = lora_request.lora_name
        if not self.config.enable_lora:
            raise no_lora(name)
        if not self.worker.capabilities.max_loras:
            raise InvalidRequestError(
                f"lora_request must be None, got {name!r}: this engine's device has no slots for "
                "adapters"
            )

    def add_lora(self, lora_request: LoRARequest) -> bool:
        """Reads an adapter ahead of its first request, and notes its id, as long as it is kept.

        Returns:
            Whether the id was new, or now means another adapter.

        Raises:
            InvalidRequestError: As `read_lora`.
        """
        return self.load_lora(lora_request)[0]

    def load_lora(self, lora_request: LoRARequest) -> tuple[bool, str]:
        """As `add_lora`; also returns the adapter's digest, which a `LoRARequest` may ask for."""
        self._check_takes(lora_request)
        return self._adapters.add(lora_request)

    def remove_lora(self, lora_id: int) -> bool:
        """Forgets the adapter of an id of `add_lora`; whether there was one.

        Requests that run with it go on. A later request reads its files anew.
        """
        return self._adapters.remove(lora_id)

    def pin_lora(self, lora_id: int) -> bool:
        """Keeps the adapter of an id in the host's memory until it is removed; False without one.

        On the device it has a slot like the others.
        """
        return self._adapters.pin(lora_id)

    def list_loras(self) -> set[int]:
        """The ids of `add_lora` whose adapters are in the host's memory."""
        return self._adapters.ids()

    def add_request(
        self,
        request_id: str,
        prompt: PromptInput,
        params: SamplingParams | PoolingParams | None = None,
        *,
        arrival_time: float | None = None,
        lora_request: LoRARequest | None = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> None:
        """Accepts a request; it will finish, or be aborted.

        Args:
            lora_request: The adapter that it is computed with, as it is now.
            arrival_time: Seconds of `time.monotonic()`; now when None.
            priority: Lower runs first, with scheduling_policy="priority".
            timeout: Seconds after arrival. The first `step` after that aborts what has not
                finished: its output is partial, with stop_reason "timeout". None: no limit.

        Raises:
            InvalidRequestError: It was not accepted; the message says which field and limit.
        """
        check_request_id(request_id)
        check_service(self.config.scheduling_policy, priority, timeout, arrival_time)
        request = self.check_request(prompt, params, request_id, checked_lora(lora_request))
        request.serve_as(request_id, arrival_time=arrival_time, priority=priority, timeout=timeout)
        self.add_all([request])

    @_alone
    def add_all(self, requests: Sequence[Request]) -> None:
        """Accepts checked requests: all, or none if anything is raised.

        Raises:
            InvalidRequestError: An id is already running.
        """
        self._running.add(requests, self.clock())

    def is_running(self, request_id: str) -> bool:
        """Whether this is the id of an unfinished request."""
        return request_id in self._running.requests

    def has_unfinished_requests(self) -> bool:
        """Whether `step` has anything to run, or outputs of a driver's step to return."""
        return bool(self._running.requests or self._running.ended or self._unread)

    @_alone
    def step(self) -> list[AnyRequestOutput]:
        """Runs one step; returns the requests' new outputs (see `RequestOutputKind`)."""
        kept = len(self._running.ended)
        try:
            self.run_step()
        except BaseException:  # it tells the caller that all requests were aborted
            del self._running.ended[kept:]
            self._running.lost = []
            raise
        return self.outputs()

    @_alone
    def run_step(self) -> None:
        """For a driver: runs one step, if there are requests; `take_updates` has what it gave.

        Raises:
            BaseException: What the step raised; all requests were aborted (`take_lost`).
        """
        if not self._running.requests:
            return
        try:
            self._end_overdue()
            if self._running.requests:
                self._run_step()
        except BaseException:
            self._abandon()
            raise
        finally:
            if self._stored is not None and not self._running.requests:
                self._stored.flush()  # no step follows that would
            self._publish_kv_events()

    def _publish_kv_events(self) -> None:
        """Tells routers what has changed in the prefix cache since they were told last."""
        if self._publisher is not None and self._kv_events is not None:
            self._publisher.publish(self._kv_events.take())

    def _run_step(self) -> None:
        running = self._running
        step, result = self._pipeline.step(self.clock())
        plan = step.plan
        self._stats.record(plan)
        running.note_planned(plan, step.planned_at)
        if result.prompt is not None or result.hidden is not None:
            take_prompts(running.requests, plan, result)
        if step.failed:
            self._end_failed(step.failed)
        sampled = sampled_rows(plan)
        ended = self.scheduler.update(sampled_tokens(sampled, result, step.verified))
        now = self.clock()
        taken = take_step(self.scheduler, running.requests, sampled, result, now)
        ended += taken.ended
        if self.config.speculative_config is not None:
            self._pipeline.learn(plan, taken.accepted, now)
            running.note_drafts(plan, taken.accepted)
        running.recorder.take_step(plan.num_batched_tokens, taken, now)
        running.streaming |= taken.streaming
        for request_id in dict.fromkeys([group.request_id for group in ended] + taken.stopped):
            running.finish(request_id, now)

    def _end_overdue(self) -> None:
        if self._running.deadlines:
            now = self.clock()
            for request_id in self._running.deadlines.expired(now):
                self._running.end(request_id, "timeout", now)

    def _end_failed(self, failed: Mapping[SequenceGroup, str]) -> None:
        """Ends the requests that have no token to draw, or whose processor or grammar failed."""
        for group, reason in failed.items():
            if self.scheduler.groups.get(group.request_id) is group:
                logger.warning("request %s is aborted: %s", group.request_id, reason)
                self._running.end(group.request_id, reason, self.clock())

    @_alone
    def abort_request(self, request_id: str | Iterable[str]) -> list[AnyRequestOutput]:
        """Ends requests at once and frees what they hold; ids that are not running are ignored.

        Returns:
            The partial outputs of the aborted requests, with finish_reason "abort". `step` returns
            those with `RequestOutputKind.DELTA` instead, after their earlier deltas.
        """
        ids = [request_id] if isinstance(request_id, str) else list(request_id)
        last = self._running.abort(ids, self.clock())
        aborted = {id(request) for request, _ in last}
        before = [one for one in self._unread if id(one[0]) in aborted]
        self._unread = [one for one in self._unread if id(one[0]) not in aborted]
        return outputs_of(before + last)[len(before) :]  # which all outputs before are part of

    @_alone
    def outputs(self) -> list[AnyRequestOutput]:
        """The outputs that `step` would return now, without running a step."""
        unread, self._unread = self._unread, []
        return outputs_of(unread + self._running.take_updates())

    @_alone
    def abort_updates(self, request_ids: Iterable[str]) -> list[RequestUpdate]:
        """For a driver: as `abort_request`; what is new in these requests, and in others."""
        return self._running.abort(request_ids, self.clock()) + self._running.take_updates()

    @_alone
    def take_updates(self) -> list[RequestUpdate]:
        """For a driver: what is new in each request since it last asked.

        All outputs of a request go one way: through `step`, or to one reader.
        """
        return self._running.take_updates()

    def take_lost(self) -> list[RequestUpdate]:
        """For a driver: the last outputs of what a failed step has aborted."""
        lost, self._running.lost = self._running.lost, []
        return lost

    def keep(self, update: RequestUpdate) -> None:
        """For a driver: what is new in a request that no reader has. `step` returns it."""
        self._unread.append(update)

    @_alone
    def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        """Forgets all cached blocks; returns False and does nothing while requests are running.

        With `reset_running_requests` running requests are computed again, with the same outputs.
        With `reset_connector` this model's files in `kv_cache_dir` go, too.
        """
        try:
            if reset_running_requests:
                self._pipeline.restart()
            elif not self.scheduler.block_manager.reset_prefix_cache():
                return False
            if reset_connector and self._stored is not None:
                self._stored.store.remove_all()
            return True
        finally:
            self._publish_kv_events()

    def _abandon(self) -> None:
        """Aborts everything after a failed step: neither KV nor cached blocks can be trusted."""
        try:
            self._running.end_all()
        finally:
            self._pipeline.clear()

    def get_tokenizer(self) -> Any:
        """Hugging Face's `PreTrainedTokenizerFast`, made when first used.

        Raises:
            InvalidRequestError: The engine was built without a tokenizer.
        """
        return self.text_tokenizer().hugging_face

    def text_tokenizer(self) -> Tokenizer:
        """The engine's own tokenizer. Raises InvalidRequestError if it has none."""
        if self.tokenizer is None:
            raise InvalidRequestError("the engine has no tokenizer (skip_tokenizer_init=True)")
        return self.tokenizer

    @_alone
    def stats(self) -> EngineStats:
        """Current queues and KV blocks, and counters since the start."""
        return replace(self._stats.now(), guided_seconds=self._pipeline.mask_seconds)

    @_alone
    def state(self) -> EngineState:
        """What happens at this moment: requests, queues, and the map of all KV blocks."""
        return engine_state(self.scheduler, self._running, self.clock())

    @_alone
    def get_metrics(self) -> list[Metric]:
        """As `LLM.get_metrics`."""
        model = self.config.model or str(self.model_source)
        return [
            *self._running.recorder.metrics(self.stats(), model),
            cache_config_info(self.config, self.stats().num_blocks, self.max_model_len),
            *self._lora_info(),
        ]

    def _lora_info(self) -> list[Metric]:
        if not self.config.enable_lora:
            return []
        requests, most = self._running.requests.values(), self.worker.capabilities.max_loras
        return [
            lora_requests_info(most, requests, time.time()),
            *lora_slots(self.scheduler.slots),
        ]

    @cached_property
    def vllm_config(self) -> Any:
        """What vLLM's programs read of its `vllm_config`: a part of it."""
        return vllm_config(self)  # type: ignore[arg-type]

    @property
    def engine_core(self) -> Self:
        """Returns the engine itself, for programs that reach into vLLM's inner engine."""
        return self

    def save_sharded_state(
        self, path: str, pattern: str | None = None, max_size: int | None = None
    ) -> None:
        """Writes the weights, in the engine's dtype, as safetensors into a folder.

        With a copy of the model's other files beside them, load_format="sharded_state" reads them.

        Args:
            pattern: Pattern of the files' names; None: "model-rank-{rank}-part-{part}.safetensors".
            max_size: Bytes of a file.

        Raises:
            ConfigError: There is no such folder, or the weights are random ones.
        """
        if self.config.load_format == "dummy":
            raise ConfigError(
                "save_sharded_state needs weights from files, got load_format='dummy'"
            )
        save_state(self.model_source, Path(path), self.config.dtype, pattern, max_size)

    def with_processors(self, params: SamplingParams) -> SamplingParams:
        """A copy with the engine's logits processors behind the request's own, if there are any.

        Raises:
            InvalidRequestError: A processor does not take these params.
        """
        classes = self.config.logits_processors
        if not classes or isinstance(params, PooledParams):
            return params
        added = request_processor(classes, params, self.vllm_config)
        return replace(params, logits_processors=[*(params.logits_processors or []), added])
