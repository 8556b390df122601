"""`AsyncLLM`: prompts in, streams of outputs out, with the engine in a process of its own."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from jax_engine.checks import check_number
from jax_engine.config import EngineConfig
from jax_engine.engine.default_sampling import default_sampling
from jax_engine.engine.prompts import (
    Prompt,
    PromptInput,
    parse_prompt,
    prompt_text,
    truncate_prompt,
)
from jax_engine.engine.request_checks import (
    check_request_id,
    check_service,
    refuse_adapters,
)
from jax_engine.engine_args import EngineArgs
from jax_engine.errors import EngineDeadError, InvalidRequestError
from jax_engine.models.resolve import HubOptions
from jax_engine.outputs import PoolingRequestOutput, RequestOutput
from jax_engine.pooling_params import PoolingParams
from jax_engine.sampling_params import SamplingParams
from jax_engine.serving.engine_client import STEP_TIMEOUT_S, EngineClient
from jax_engine.serving.messages import Add
from jax_engine.serving.open_requests import OpenRequests
from jax_engine.serving.streams import CompletionStream, PoolingStream
from jax_engine.serving.wire_params import needs_text, written
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer

LONG_TEXT = 4096  # characters; longer prompts are tokenised in another thread
CLOSE_S = 5.0  # how long the engine's process may take to end


class AsyncLLM:
    """An engine for asyncio. All its methods are called in one event loop.

    Args:
        step_timeout: the engine is taken for dead when a step runs for so many seconds.
        settings: as for `LLM`, but for what is not plain data (functions and classes).

    Raises:
        JaxEngineError: as `LLM`.
        EngineDeadError: the engine's process ended while it started.
    """

    def __init__(
        self, model: str | None = None, *, step_timeout: float = STEP_TIMEOUT_S, **settings: Any
    ) -> None:
        self.config = EngineConfig.from_settings(model=model, **settings)
        check_number("step_timeout", step_timeout, 0.0, open_low=True)
        self._client = EngineClient({"model": model, **settings}, step_timeout)
        self._ready = self._client.ready
        self._tokenizer = self._own_tokenizer()
        self._requests = OpenRequests(self._client)

    @classmethod
    def from_engine_args(
        cls, engine_args: EngineArgs, *, step_timeout: float = STEP_TIMEOUT_S, **ignored: Any
    ) -> Self:
        """An engine with these settings. Raises the same errors as `AsyncLLM`."""
        return cls(step_timeout=step_timeout, **vars(engine_args))

    def _own_tokenizer(self) -> Tokenizer | None:
        config = self.config
        if config.skip_tokenizer_init:
            return None
        revision = config.tokenizer_revision or config.revision
        hub = HubOptions(revision, config.download_dir, config.hf_token)
        return load_tokenizer(config.tokenizer or self._ready.source, hub)

    @property
    def model(self) -> str:
        """The name or path of the model."""
        return self._ready.model

    @property
    def max_model_len(self) -> int:
        """The longest prompt plus output, in tokens."""
        return self._ready.max_model_len

    async def generate(
        self,
        prompt: PromptInput,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        lora_request: None = None,
        trace_headers: Mapping[str, str] | None = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """Completes a prompt; yields outputs of the kind that `output_kind` asks for.

        What arrives while nobody reads is read as one output. The request is aborted when the
        iterator is closed or its task is cancelled.

        Args:
            sampling_params: None: those of `get_default_sampling_params`.
            request_id: unique among unfinished requests; None: a new one.
            lora_request: only None; for compatibility with vLLM.
            trace_headers: no effect; for compatibility with vLLM.
            priority: as for `LLMEngine.add_request`.
            timeout: as for `LLMEngine.add_request`.

        Raises:
            InvalidRequestError: the request was not accepted.
            StepFailedError: a step failed with it.
            EngineDeadError: the engine's process has ended.
        """
        refuse_adapters(lora_request)
        params = self.get_default_sampling_params() if sampling_params is None else sampling_params
        if not isinstance(params, SamplingParams):
            raise InvalidRequestError(
                f"sampling_params must be SamplingParams, got {type(params).__name__}"
            )
        params = params.clone()
        params.__post_init__()
        arrival = time.monotonic()
        parsed = truncate_prompt(
            await self._parsed(prompt), params.truncate_prompt_tokens, self.max_model_len
        )
        has_text = needs_text(params)
        stream = CompletionStream(
            self._new_id(request_id),
            parsed,
            params,
            self._tokenizer,
            has_text=has_text,
            arrival_time=arrival,
        )
        fields = written(params, detokenize=has_text)
        fields.pop("truncate_prompt_tokens", None)
        add = self._request(parsed, fields, arrival, priority, timeout)
        async for output in self._requests.outputs(stream, add):
            yield output

    async def encode(
        self,
        prompt: PromptInput,
        pooling_params: PoolingParams | None = None,
        request_id: str | None = None,
        *,
        lora_request: None = None,
        trace_headers: Mapping[str, str] | None = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> AsyncIterator[PoolingRequestOutput]:
        """Yields the one output of a pooling request. Arguments and errors as for `generate`."""
        refuse_adapters(lora_request)
        params = PoolingParams() if pooling_params is None else pooling_params
        if not isinstance(params, PoolingParams):
            raise InvalidRequestError(
                f"pooling_params must be PoolingParams, got {type(params).__name__}"
            )
        arrival = time.monotonic()
        parsed = await self._parsed(prompt)
        stream = PoolingStream(self._new_id(request_id), parsed)
        add = self._request(parsed, written(params), arrival, priority, timeout, pooling=True)
        async for output in self._requests.outputs(stream, add):
            yield output

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """Ends requests; ids that are not running are ignored.

        Their iterators yield a last output with finish_reason "abort".
        """
        self._requests.abort([request_id] if isinstance(request_id, str) else request_id)

    async def check_health(self) -> None:
        """Raises EngineDeadError if the engine cannot answer."""
        problem = self._client.problem()
        if problem is not None:
            raise EngineDeadError(problem)

    @property
    def is_running(self) -> bool:
        """Whether the engine can take requests."""
        return self._client.problem() is None

    @property
    def errored(self) -> bool:
        """Whether the engine cannot take requests any more."""
        return not self.is_running

    @property
    def dead_error(self) -> BaseException:
        """The error that all requests raise once the engine has ended."""
        return EngineDeadError(self._client.problem() or "the engine runs")

    @property
    def engine_pid(self) -> int:
        """The id of the engine's process."""
        return self._client.pid

    @property
    def num_unfinished_requests(self) -> int:
        """Requests without their last output."""
        return len(self._requests)

    async def get_tokenizer(self) -> Any:
        """Hugging Face's `PreTrainedTokenizerFast`, made when first used.

        Raises:
            InvalidRequestError: the engine was built without a tokenizer.
        """
        return self.text_tokenizer().hugging_face

    def text_tokenizer(self) -> Tokenizer:
        """The engine's own tokenizer. Raises InvalidRequestError if it has none."""
        if self._tokenizer is None:
            raise InvalidRequestError("the engine has no tokenizer (skip_tokenizer_init=True)")
        return self._tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """As `LLM.get_default_sampling_params`."""
        return SamplingParams.from_optional(**self.default_sampling())

    def default_sampling(self) -> dict[str, Any]:
        """The fields of `SamplingParams` that the model's makers suggest."""
        return default_sampling(self.config, Path(self._ready.source))

    async def get_stats(self) -> dict[str, Any]:
        """The fields of `EngineStats`."""
        stats: dict[str, Any] = await self._requests.ask("stats")
        return stats

    async def get_metrics(self) -> list[dict[str, Any]]:
        """The fields of `LLM.get_metrics`' metrics, and as "kind" the name of each one's class."""
        metrics: list[dict[str, Any]] = await self._requests.ask("metrics")
        return metrics

    async def reset_prefix_cache(self) -> bool:
        """As `LLM.reset_prefix_cache`, between two steps."""
        return bool(await self._requests.ask("reset_prefix_cache"))

    def shutdown(self, timeout: float | None = None) -> None:
        """Ends the engine's process; iterators that are open raise EngineDeadError.

        Args:
            timeout: seconds until the process is killed.
        """
        self._client.close(CLOSE_S if timeout is None else timeout)
        self._requests.end_all("the engine was shut down")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    def __del__(self) -> None:
        client = getattr(self, "_client", None)
        if client is not None:
            client.close(0.0)

    async def _parsed(self, prompt: PromptInput) -> Prompt:
        text = prompt_text(prompt)
        arguments = prompt, self._tokenizer, self._ready.vocab_size
        if text is not None and len(text) > LONG_TEXT:
            return await asyncio.to_thread(parse_prompt, *arguments)
        return parse_prompt(*arguments)

    def _new_id(self, request_id: str | None) -> str:
        if request_id is None:
            request_id = f"request-{self._requests.new_name()}"
        check_request_id(request_id)
        self._requests.check_free(request_id)
        return request_id

    def _request(
        self,
        prompt: Prompt,
        params: dict[str, Any],
        arrival: float,
        priority: int,
        timeout: float | None,
        *,
        pooling: bool = False,
    ) -> Add:
        check_service(self.config.scheduling_policy, priority, timeout)
        name = self._requests.new_name()
        return Add(
            name, prompt.token_ids, params, pooling, arrival, prompt.cache_salt, priority, timeout
        )


AsyncLLMEngine = AsyncLLM
