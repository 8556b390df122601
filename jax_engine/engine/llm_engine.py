"""The loop that ties everything together: add_request, step, abort_request.

A step schedules, executes on the device, and processes the outputs while the device computes the
next step (`pipeline`). All state of a request is found by its id, so an abort between two steps
frees exactly what it held. Threads take turns: methods that use its state hold the engine's lock.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from jax_engine.config import EngineConfig
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.engine.build import EngineParts, build_engine
from jax_engine.engine.engine_lock import EngineLock
from jax_engine.engine.engine_views import EngineViews
from jax_engine.engine.mailbox import Mailbox
from jax_engine.engine.pipeline import StepPipeline
from jax_engine.engine.pooling import as_sampling_params
from jax_engine.engine.prompts import PromptInput
from jax_engine.engine.request import Request
from jax_engine.engine.request_checks import RequestChecks, check_request_id, check_service
from jax_engine.engine.running_requests import RunningRequests
from jax_engine.engine.stats import StatsRecorder
from jax_engine.engine.step_outputs import sampled_rows, sampled_tokens, take_prompts, take_step
from jax_engine.engine.vllm_parts import VllmParts
from jax_engine.outputs import AnyRequestOutput
from jax_engine.pooling_params import PoolingParams
from jax_engine.sampling_params import SamplingParams
from jax_engine.tokenization.tokenizer import Tokenizer

logger = logging.getLogger("jax_engine")


class LLMEngine(EngineViews, VllmParts):
    """One model, one KV cache, any number of requests, from any number of threads.

    All methods raise ForkedProcessError in a process that was forked from the engine's.

    Attributes:
        clock: Returns the time in seconds; `time.monotonic` unless a test replaces it.
        lock: Excludes all other threads, to make several calls atomic.
    """

    def __init__(self, parts: EngineParts) -> None:
        self.config = parts.config
        self.model_config = parts.model_config
        self.model_source = parts.model_source
        self.head = parts.head
        self.memory = parts.memory
        self.scheduler = parts.scheduler
        self.worker = parts.worker
        self.tokenizer: Tokenizer | None = parts.tokenizer
        self.max_model_len = parts.max_model_len
        self.clock: Callable[[], float] = time.monotonic
        vocab_size, eos = parts.model_config.vocab_size, parts.eos_token_ids
        self._checks = RequestChecks(
            self.tokenizer, vocab_size, self.max_model_len, eos, self.config.max_logprobs
        )
        self.lock = EngineLock()
        self._stats = StatsRecorder(self.scheduler)
        self._pipeline = StepPipeline(
            self.scheduler, self.worker, look_ahead=self.config.overlaps_steps
        )
        self._running = RunningRequests(self.scheduler, self._pipeline, eos, self.config.seed)

    @classmethod
    def from_config(cls, config: EngineConfig) -> "LLMEngine":
        """Builds an engine from its settings.

        Raises:
            ConfigError, ModelNotFoundError, WeightsError, OutOfMemoryError: With what to do next.
        """
        engine = cls(build_engine(config))
        if config.warmup:
            engine.warmup()
        return engine

    def check_process(self) -> None:
        """Raises ForkedProcessError in a fork of the process that built the engine."""
        self.lock.check_process()

    def warmup(self, *, use_tqdm: bool = True) -> int:
        """Compiles the steps of plain requests (see docs/startup.md for others); returns how many.

        Compiled steps stay in the persistent cache: the next process only loads them.
        """
        limits = self.scheduler.max_num_batched_tokens, self.config.max_num_seqs
        with self.lock:
            return self.worker.compile_ahead(*limits, use_tqdm=use_tqdm)

    def check_request(
        self,
        prompt: PromptInput,
        params: SamplingParams | PoolingParams | None = None,
        request_id: str = "new",
    ) -> Request:
        """Parses and validates a request without accepting it.

        Returns:
            A request that `add_all` can accept once.

        Raises:
            InvalidRequestError: The prompt or a parameter does not suit this model.
            RequestTooLargeError: It could never run in this engine.
        """
        self.check_process()  # no lock: requests are checked while others run
        given = SamplingParams() if params is None else params
        params = self.with_processors(as_sampling_params(given, self.model_config, self.head))
        request = self._checks.check(request_id, prompt, params)
        self.scheduler.check_group(request.group)
        return request

    def add_request(
        self,
        request_id: str,
        prompt: PromptInput,
        params: SamplingParams | PoolingParams | None = None,
        *,
        arrival_time: float | None = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> None:
        """Accepts a request; it will finish, or be aborted.

        Args:
            arrival_time: Seconds of `time.monotonic()`; now when None.
            priority: Lower runs first, with scheduling_policy="priority".
            timeout: Seconds after arrival. The first `step` after that aborts what has not
                finished: its output is partial, with stop_reason "timeout". None: no limit.

        Raises:
            InvalidRequestError: It was not accepted; the message says which field and limit.
        """
        check_request_id(request_id)
        check_service(self.config.scheduling_policy, priority, timeout, arrival_time)
        request = self.check_request(prompt, params, request_id)
        request.serve_as(request_id, arrival_time=arrival_time, priority=priority, timeout=timeout)
        self.add_all([request])

    def add_all(self, requests: Sequence[Request], mailbox: Mailbox | None = None) -> None:
        """Accepts checked requests: all, or none if anything is raised.

        Args:
            mailbox: Gets the requests' last outputs, which `step` then does not return. They have
                no others (`RequestOutputKind.FINAL_ONLY`).

        Raises:
            InvalidRequestError: An id is already running.
        """
        with self.lock:
            self._running.add(requests, self.clock(), mailbox)

    def is_running(self, request_ids: Iterable[str]) -> bool:
        """Whether any of these ids belongs to an unfinished request."""
        with self.lock:
            return any(one in self._running.requests for one in request_ids)

    def has_unfinished_requests(self) -> bool:
        """Whether `step` has anything to run, or outputs of another thread's step to return."""
        return bool(self._running.requests or self._running.ended)

    def step(self) -> list[AnyRequestOutput]:
        """Runs one step; returns the requests' new outputs (see `RequestOutputKind`).

        Requests with a mailbox are not included.
        """
        with self.lock:
            kept = len(self._running.ended)
            try:
                self._step()
            except BaseException:  # it tells the caller that all requests were aborted
                del self._running.ended[kept:]
                raise
            return self._running.take_outputs()

    def serve(self) -> bool:
        """Runs one step for all mailboxes; other outputs are kept for `step` to return.

        Returns:
            False if there was no request.
        """
        with self.lock:
            return self._step()

    def _step(self) -> bool:
        if not self._running.requests:
            return False
        try:
            self._end_overdue()
            if self._running.requests:
                self._run_step()
        except BaseException as error:
            self._abandon(error)
            raise
        return True

    def _run_step(self) -> None:
        running = self._running
        step, result = self._pipeline.step(self.clock())
        plan = step.plan
        self._stats.record(plan)
        running.note_planned(plan, step.planned_at)
        take_prompts(running.requests, plan, result)
        self._end_failed(step.failed)
        sampled = sampled_rows(plan)
        ended = self.scheduler.update(sampled_tokens(sampled, result))
        now = self.clock()
        taken = take_step(self.scheduler, running.requests, sampled, result, now)
        running.recorder.take_step(plan.num_batched_tokens, taken, now)
        running.news |= taken.streaming
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

    def abort_request(self, request_id: str | Iterable[str]) -> list[AnyRequestOutput]:
        """Ends requests at once and frees what they hold; ids that are not running are ignored.

        Returns:
            The partial outputs of the aborted requests, with finish_reason "abort". `step` returns
            those with `RequestOutputKind.DELTA` instead, after their earlier deltas.
        """
        ids = [request_id] if isinstance(request_id, str) else list(request_id)
        with self.lock:
            return self._running.abort(ids, self.clock())

    def outputs(self) -> list[AnyRequestOutput]:
        """The outputs that `step` would return now, without running a step."""
        with self.lock:
            return self._running.take_outputs()

    def abort_all(self, mailbox: Mailbox) -> None:
        """Ends all requests with this mailbox."""
        with self.lock:
            self._running.abort_all(mailbox, self.clock())

    def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        """Forgets all cached blocks; returns False and does nothing while requests are running.

        With `reset_running_requests` running requests are computed again, with the same outputs.
        """
        with self.lock:
            if reset_running_requests:
                return self._pipeline.restart()
            return self.scheduler.block_manager.reset_prefix_cache()

    def _abandon(self, error: BaseException) -> None:
        """Aborts everything after a failed step: neither KV nor cached blocks can be trusted."""
        try:
            self._running.end_all(error)
        finally:
            self._pipeline.clear()
