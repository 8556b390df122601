"""An `AsyncLLM` without an engine: it says what it is told to, and remembers what it was asked."""

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np

from jax_engine import InvalidRequestError, PoolingParams, RequestOutputKind, SamplingParams
from jax_engine.outputs import (
    CompletionOutput,
    Logprob,
    PoolingOutput,
    PoolingRequestOutput,
    RequestMetrics,
    RequestOutput,
)
from jax_engine.serving.stat_loggers import GAUGES
from jax_engine.serving.text_encoder import TextEncoder
from jax_engine.tokenization.tokenizer import Tokenizer


@dataclass
class ScriptedLLM:
    """
    Attributes:
        error: raised after the first piece of each output.
        hangs: no request ever ends by itself.
        asked: the prompts and parameters of all requests.
        timeouts: the seconds that each may take.
        request_ids: those that requests were given.
        state: what `get_state` says; `questions` counts how often.
        open: requests that are running.
        reason, stop_reason: how each output ends.
        metrics: the times of each request that has ended; None: none but its arrival.
        waits: what a request waits for before its first output; None: nothing.
    """

    tokenizer: Tokenizer
    text: str = "Hello"
    defaults: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None
    hangs: bool = False
    busy: bool = False
    errored: bool = False
    max_model_len: int = 4096
    reason: str = "stop"
    stop_reason: int | str | None = None
    asked: list[tuple[Any, Any]] = field(default_factory=list)
    timeouts: list[float | None] = field(default_factory=list)
    request_ids: list[str | None] = field(default_factory=list)
    head_task: str | None = None
    labels: list[str] = field(default_factory=list)
    state: Any = None
    questions: int = 0
    step_seconds: float | None = None
    open: int = 0
    num_unfinished_requests: int = 0
    token_types: int = 0
    kept_around: tuple[int, int] = (0, 0)
    metrics: RequestMetrics | None = None
    waits: Callable[[], Awaitable[None]] | None = None
    config: Any = field(
        default_factory=lambda: SimpleNamespace(
            max_num_seqs=2,
            model="tiny",
            skip_tokenizer_init=False,
            pooler_config=None,
            generation_config="auto",
            override_generation_config=None,
        )
    )

    @property
    def ranks(self) -> bool:
        return self.head_task == "token_embed"

    @property
    def is_running(self) -> bool:
        return not self.errored

    def default_sampling(self) -> dict[str, Any]:
        return self.defaults

    def text_tokenizer(self) -> Tokenizer:
        return self.tokenizer

    def text_encoder(self) -> TextEncoder:
        return self._encoder

    @cached_property
    def _encoder(self) -> TextEncoder:
        return TextEncoder(self.tokenizer, self.max_model_len)

    def shutdown(self, timeout: float | None = None) -> None:
        """Ends the threads that tokenise, as that of an `AsyncLLM` does."""
        self._encoder.close()

    def default_pooling(self, task: Any) -> PoolingParams:
        return PoolingParams(task=task)

    async def generate(
        self,
        prompt: Any,
        params: SamplingParams,
        request_id: str | None = None,
        *,
        lora_request: Any = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> AsyncIterator[RequestOutput]:
        self.asked.append((prompt, params))
        self.timeouts.append(timeout)
        self.request_ids.append(request_id)
        if prompt.get("prompt") == "refuse":
            raise InvalidRequestError("logprobs must be at most 20, see /opt/models/secret/x.json")
        if prompt.get("prompt") == "bug":
            raise ZeroDivisionError("in /opt/models/secret/x.json")
        self.open += 1
        try:
            if self.waits is not None:
                await self.waits()
            text = self.text if params.output_kind is RequestOutputKind.FINAL_ONLY else None
            if text is None:
                for letter in self.text[:-1]:
                    yield self._output(prompt, params, letter, None)
                    await asyncio.sleep(0)
                    if self.error is not None:
                        raise self.error
                text = self.text[-1]
            if self.hangs:
                await asyncio.Event().wait()
            yield self._output(prompt, params, text, self.reason)
        finally:
            self.open -= 1

    def _output(
        self, prompt: Any, params: SamplingParams, text: str, reason: str | None
    ) -> RequestOutput:
        ids = prompt.get("prompt_token_ids") or self.tokenizer.encode(prompt["prompt"])
        ended = reason is not None
        outputs = [
            CompletionOutput(
                i,
                text,
                self.tokenizer.encode(text),
                logprobs=self._logprobs(params, text),
                finish_reason=reason,
                stop_reason=self.stop_reason if ended else None,
            )
            for i in range(params.n)
        ]
        asked = None if params.prompt_logprobs is None else self._entries(ids)
        found = RequestOutput("x", prompt.get("prompt"), ids, outputs, ended, num_cached_tokens=1)
        if ended and self.metrics is not None:
            found.metrics = self.metrics
        found.prompt_logprobs = asked and [None, *asked[1:]]
        return found

    def _logprobs(self, params: SamplingParams, text: str) -> list[dict[int, Logprob]] | None:
        if params.logprob_token_ids is not None:
            wanted = {one: Logprob(-3.0, 9, chr(one)) for one in params.logprob_token_ids}
            return [wanted | one for one in self._entries(self.tokenizer.encode(text))]
        if params.logprobs is None:
            return None
        others = {one: Logprob(-2.0, 1 + one, "x") for one in range(1, params.logprobs)}
        return [others | one for one in self._entries(self.tokenizer.encode(text))]

    def _entries(self, ids: list[int]) -> list[dict[int, Logprob]]:
        return [{one: Logprob(-0.5, 1, self.tokenizer.decode([one]))} for one in ids]

    async def encode(
        self,
        prompt: Any,
        params: Any,
        request_id: str | None = None,
        *,
        lora_request: Any = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> AsyncIterator[PoolingRequestOutput]:
        self.asked.append((prompt, params))
        self.timeouts.append(timeout)
        self.request_ids.append(request_id)
        data = PoolingOutput(np.array([0.25, -1.0]))
        yield PoolingRequestOutput("x", data, [1, 2, 3], True)

    async def get_metrics(self) -> list[dict[str, Any]]:
        if self.busy:
            await asyncio.Event().wait()
        labels = {"model_name": "tiny", "finished_reason": "stop"}
        return [
            {"kind": "Counter", "name": "vllm:request_success", "labels": labels, "value": 3},
            {
                "kind": "Histogram",
                "name": "vllm:time_to_first_token_seconds",
                "labels": {"model_name": "tiny"},
                "count": 3,
                "sum": 1.5,
                "buckets": {"0.5": 2, "+Inf": 3},
            },
        ]

    async def get_state(self, engine: int = 0) -> dict[str, Any]:
        self.questions += 1
        assert engine < len(self.engines_alive)
        if self.busy:
            await asyncio.Event().wait()
        return copy.deepcopy(self.state)

    async def get_stats_of_engines(self) -> list[dict[str, Any]]:
        return [dict.fromkeys(GAUGES.values(), 0) | {"num_swapped": 1, "num_used_blocks": 4}]

    @property
    def num_open_requests(self) -> list[int]:
        return [self.num_unfinished_requests]

    @property
    def engines_alive(self) -> list[bool]:
        return [self.is_running]
