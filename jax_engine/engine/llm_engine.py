"""The loop that ties everything together: add_request, step, abort_request.

A step schedules, executes on the device, and processes the outputs, while the device is given
the next one (`pipeline`). All state of a request is reached through its id, so an abort at any
moment between two steps frees exactly what it held.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

from jax_engine.config import EngineConfig
from jax_engine.core.sequence import SequenceGroup
from jax_engine.engine.build import EngineParts, build_engine
from jax_engine.engine.deadlines import Deadlines
from jax_engine.engine.default_sampling import default_sampling
from jax_engine.engine.pipeline import StepPipeline
from jax_engine.engine.pooling import as_sampling_params
from jax_engine.engine.prompts import Prompt, PromptInput
from jax_engine.engine.request_checks import CheckedRequest, RequestChecks, check_service
from jax_engine.engine.request_state import RequestState
from jax_engine.engine.stats import EngineStats, StatsRecorder
from jax_engine.engine.step_outputs import sampled_rows, sampled_tokens, take_prompts, take_step
from jax_engine.engine_args import EngineArgs
from jax_engine.errors import InvalidRequestError
from jax_engine.outputs import AnyRequestOutput, RequestMetrics
from jax_engine.pooling_params import PoolingParams
from jax_engine.sampling_params import SamplingParams
from jax_engine.tokenization.tokenizer import Tokenizer
from jax_engine.worker.request_sampling import request_seed
from jax_engine.worker.step_shape import all_step_shapes
from jax_engine.worker.warmup import compile_ahead
from jax_engine.worker.worker import StepResult

logger = logging.getLogger("jax_engine")


class LLMEngine:
    """One model, one KV cache, any number of requests; not thread-safe.

    Attributes:
        clock: Gives the time in seconds; `time.monotonic` unless a test replaces it.
    """

    def __init__(self, parts: EngineParts) -> None:
        self.config = parts.config
        self.model_config = parts.model_config
        self.model_source = parts.model_source
        self.memory = parts.memory
        self.scheduler = parts.scheduler
        self.worker = parts.worker
        self.tokenizer: Tokenizer | None = parts.tokenizer
        self.max_model_len = parts.max_model_len
        self.clock: Callable[[], float] = time.monotonic
        self._eos_token_ids = parts.eos_token_ids
        self._checks = RequestChecks(
            parts.tokenizer,
            parts.model_config.vocab_size,
            self.max_model_len,
            parts.eos_token_ids,
            self.config.max_logprobs,
        )
        self._states: dict[str, RequestState] = {}
        self._deadlines = Deadlines()
        self._num_added = 0
        self._stats = StatsRecorder(self.scheduler, parts.preemption_costs)
        self._pipeline = StepPipeline(
            self.scheduler, self.worker, look_ahead=self.config.overlaps_steps
        )

    @classmethod
    def from_config(cls, config: EngineConfig) -> "LLMEngine":
        """Builds everything from settings.

        Raises:
            ConfigError, ModelNotFoundError, WeightsError, OutOfMemoryError: With what to do next.
        """
        engine = cls(build_engine(config))
        if config.warmup:
            engine.warmup()
        return engine

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs, **others: Any) -> "LLMEngine":
        """`from_config` for vLLM's callers; what else they give is about its processes."""
        return cls.from_config(engine_args.create_engine_config())

    @cached_property
    def default_sampling(self) -> dict[str, Any]:
        """The sampling parameters that the model's files suggest. Raises WeightsError."""
        return default_sampling(self.config, self.model_source)

    def warmup(self, *, use_tqdm: bool = True) -> int:
        """Compiles every step of plain requests (docs/startup.md has the others); returns how many.

        What is compiled stays in the persistent cache: the next process only loads it.
        """
        limits = self.scheduler.max_num_batched_tokens, self.config.max_num_seqs
        return compile_ahead(self.worker, all_step_shapes(*limits), use_tqdm=use_tqdm)

    def check_request(
        self,
        prompt: PromptInput,
        params: SamplingParams | PoolingParams | None = None,
        request_id: str = "new",
    ) -> CheckedRequest:
        """Parses and validates without accepting anything.

        Returns:
            What `add_checked` accepts, once.

        Raises:
            InvalidRequestError: The prompt or a parameter does not suit this model.
            RequestTooLargeError: It could never run in this engine.
        """
        params = SamplingParams() if params is None else as_sampling_params(params)
        checked = self._checks.check(prompt, params)
        self.scheduler.check_group(self._group(request_id, checked.prompt, checked.params))
        return checked

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
                finished: its output is what there is, with stop_reason "timeout". None: no limit.

        Raises:
            InvalidRequestError: Nothing was accepted; the message says which field and limit.
        """
        checked = self.check_request(prompt, params, request_id)
        self.add_checked(
            request_id, checked, arrival_time=arrival_time, priority=priority, timeout=timeout
        )

    def add_checked(
        self,
        request_id: str,
        request: CheckedRequest,
        *,
        arrival_time: float | None = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> None:
        """As `add_request`, for what `check_request` returned."""
        if request_id in self._states:
            raise InvalidRequestError(f"request_id {request_id!r} is already running: use another")
        check_service(priority, self.config.scheduling_policy, timeout)
        arrival = self.clock() if arrival_time is None else arrival_time
        prompt, params, constraints = request.prompt, request.params, request.constraints
        group = self._group(request_id, prompt, params)
        group.arrival_time, group.priority = arrival, priority
        group.needs_last_token = constraints is not None and constraints.needs_last_token
        self.scheduler.add_group(group)
        metrics = RequestMetrics(arrival)
        self._states[request_id] = RequestState(prompt, params, group, metrics, self.tokenizer)
        seed = request_seed(params, self.config.seed, self._num_added)
        self._num_added += 1
        self.worker.add_request(request_id, params, seed, self._eos_token_ids, constraints)
        if timeout is not None:
            self._deadlines.add(request_id, arrival + timeout)

    def _group(self, request_id: str, prompt: Prompt, params: SamplingParams) -> SequenceGroup:
        return SequenceGroup(
            request_id,
            prompt.token_ids,
            params,
            eos_token_ids=self._eos_token_ids,
            cache_salt=prompt.cache_salt,
        )

    def has_unfinished_requests(self) -> bool:
        return bool(self._states)

    def step(self) -> list[AnyRequestOutput]:
        """Runs one step; returns the requests with something new (see `RequestOutputKind`)."""
        expired = self._deadlines.expired(self.clock()) if self._deadlines else []
        overdue = self._abort(expired, "timeout")
        if not self._states:
            return overdue
        try:
            plan, result = self._pipeline.step()
        except BaseException:
            self._abandon()
            raise
        self._stats.record(plan)
        take_prompts(self._states, plan, result)
        failed = self._abort_failed(result)
        sampled = sampled_rows(plan)
        ended = self.scheduler.update(sampled_tokens(sampled, result))
        taken = take_step(self.scheduler, self._states, sampled, result, self.clock())
        finished = dict.fromkeys([group.request_id for group in ended] + taken.stopped)
        outputs: list[AnyRequestOutput] = [
            state.request_output(finished=False)
            for request_id, state in taken.streaming.items()
            if request_id not in finished
        ]
        outputs += [self._finish(self._states[request_id]) for request_id in finished]
        return overdue + failed + outputs

    def _abort_failed(self, result: StepResult) -> list[AnyRequestOutput]:
        """Ends the requests for which there was no token to draw; the others go on."""
        aborted: list[AnyRequestOutput] = []
        for group, reason in result.failed.items():
            if self.scheduler.groups.get(group.request_id) is group:
                logger.warning("request %s is aborted: %s", group.request_id, reason)
                aborted += self._abort([group.request_id], reason)
        return aborted

    def abort_request(self, request_id: str | Iterable[str]) -> list[AnyRequestOutput]:
        """Ends requests at once and frees what they hold; ids that are not running are ignored.

        Returns:
            The aborted requests as far as they came, with finish_reason "abort".
        """
        ids = [request_id] if isinstance(request_id, str) else list(request_id)
        return self._abort(ids, None)

    def get_tokenizer(self) -> Any:
        """Hugging Face's `PreTrainedTokenizerFast`, made when first used.

        Raises:
            InvalidRequestError: The engine was built without one.
        """
        return self.text_tokenizer().hugging_face

    def text_tokenizer(self) -> Tokenizer:
        """The engine's own. Raises InvalidRequestError when it was built without one."""
        if self.tokenizer is None:
            raise InvalidRequestError("the engine has no tokenizer (skip_tokenizer_init=True)")
        return self.tokenizer

    def stats(self) -> EngineStats:
        """Queues and KV blocks as they are now, and the counters since the start."""
        return replace(self._stats.now(), guided_seconds=self.worker.mask_seconds)

    def reset_prefix_cache(self) -> bool:
        """Forgets all cached blocks; False, and nothing done, while requests are running."""
        return self.scheduler.block_manager.reset_prefix_cache()

    def _abort(self, request_ids: list[str], stop_reason: str | None) -> list[AnyRequestOutput]:
        aborted: list[AnyRequestOutput] = []
        for one in request_ids:
            state = self._states.get(one)
            if state is not None:
                self.scheduler.abort(one, stop_reason)
                aborted.append(self._finish(state))
        return aborted

    def _abandon(self) -> None:
        """After a step that failed midway: nobody's KV can be trusted, nor what was cached."""
        self.abort_request(list(self._states))
        self._pipeline.clear()
        self.reset_prefix_cache()
        self.worker.kv_cache.recover()

    def _finish(self, state: RequestState) -> AnyRequestOutput:
        request_id = state.group.request_id
        state.metrics.finished_time = self.clock()
        del self._states[request_id]
        self._deadlines.remove(request_id)
        self.worker.remove_request(request_id)
        return state.final_output()
