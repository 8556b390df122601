"""`AsyncLLM`: prompts in, streams of outputs out, with each engine in a process of its own."""

import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, get_args

from jax_engine.checks import check_integer, check_number, shown
from jax_engine.config.engine_args import EngineArgs
from jax_engine.config.engine_config import EngineConfig, own_settings
from jax_engine.core.admission import prompt_too_long
from jax_engine.engine.assembler import Assembler
from jax_engine.engine.requests.default_sampling import default_sampling
from jax_engine.engine.requests.prompt_embeds import EmbedsForm
from jax_engine.engine.requests.prompts import (
    Prompt,
    PromptInput,
    parse_prompt,
    prediction_text,
    prompt_text,
    truncate_prompt,
    with_prediction,
    with_token_ids,
)
from jax_engine.engine.requests.request import check_request_id, check_service, own_params
from jax_engine.errors import EngineDeadError, InvalidRequestError
from jax_engine.lora.request import MAX_ID, LoRARequest, checked_lora, no_lora
from jax_engine.models.checkpoints.resolve import HubOptions
from jax_engine.outputs import PoolingRequestOutput, RequestOutput
from jax_engine.pooling_params import PoolingParams, PoolingTask, default_pooling
from jax_engine.sampling_params import SamplingParams
from jax_engine.serving.engine_client import STEP_TIMEOUT_S
from jax_engine.serving.engine_group import EngineGroup
from jax_engine.serving.messages import Add, PauseMode, lora_fields, params_fields, streams
from jax_engine.serving.open_requests import CompletionStream, PoolingStream
from jax_engine.serving.request_log import CLIENT_REQUEST, ClientRequest, OutputLog, RequestLog
from jax_engine.serving.text_encoder import TextEncoder
from jax_engine.serving.tracing import Tracer
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer

CLOSE_S = 5.0  # how long the engine's process may take to end


class AsyncLLM:
    """An engine for asyncio. All its methods are called in one event loop.

    Args:
        step_timeout: the engine is taken for dead when a step runs for so many seconds.
        settings: as for `LLM`, but for what is not plain data (functions and classes).

    Attributes:
        embeds: how prompts are taken that are embeddings; None: they are refused.
        request_log: called with each request; None: there is no line for each.
        max_logged_output: what `OutputLog` shows of each output that ends; None: it has no line.
        tracer: called with each `generate` that has ended; None: there are no spans.

    Raises:
        JaxEngineError: as `LLM`.
        EngineDeadError: the engine's process ended while it started.
    """

    def __init__(
        self, model: str | None = None, *, step_timeout: float = STEP_TIMEOUT_S, **settings: Any
    ) -> None:
        own = own_settings({"model": model, **settings})
        self.config = EngineConfig(**own)
        check_number("step_timeout", step_timeout, 0.0, open_low=True)
        self._engines = EngineGroup(
            {**own, "data_parallel_size": 1},
            self.config.data_parallel_size,
            devices_each=self.config.world_size,
            prefix_caching=self.config.prefix_caching,
            step_timeout=step_timeout,
        )
        self._ready = self._engines.ready
        self._tokenizer = self._own_tokenizer()
        self._encoder = None
        if self._tokenizer is not None:
            self._encoder = TextEncoder(self._tokenizer, self.max_model_len)
        form = EmbedsForm(self._ready.width, self._ready.dtype)
        self.embeds = form if self.config.enable_prompt_embeds else None
        self._paused = False
        self.request_log: RequestLog | None = None
        self.max_logged_output: int | None = None
        self.tracer: Tracer | None = None

    @classmethod
    def from_engine_args(
        cls, engine_args: EngineArgs, *, step_timeout: float = STEP_TIMEOUT_S, **ignored: Any
    ) -> Self:
        """An engine with these settings. Raises the same errors as `AsyncLLM`."""
        return cls(step_timeout=step_timeout, **engine_args.settings())

    def _own_tokenizer(self) -> Tokenizer | None:
        config = self.config
        if config.skip_tokenizer_init:
            return None
        revision = config.tokenizer_revision or config.revision
        hub = HubOptions(revision, config.download_dir, config.hf_token)
        source = config.tokenizer or self._ready.source
        return load_tokenizer(source, hub, config.tokenizer_mode)

    def generate(
        self,
        prompt: PromptInput,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        lora_request: LoRARequest | None = None,
        trace_headers: Mapping[str, str] | None = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> AsyncGenerator[RequestOutput]:
        """Completes a prompt; yields outputs of the kind that `output_kind` asks for.

        What arrives while nobody reads is read as one output. The request is aborted when the
        iterator is closed or its task is cancelled.

        Args:
            sampling_params: None: those of `get_default_sampling_params`. Later changes of the
                object do not count.
            request_id: unique among unfinished requests; None: a new one.
            lora_request: the adapter that it is computed with, by a path: the engine's process
                reads it, beside the steps that run meanwhile. Needs enable_lora=True.
            trace_headers: those of the client; `traceparent` names the parent of its span.
            priority: as for `LLMEngine.add_request`.
            timeout: as for `LLMEngine.add_request`.

        Raises:
            InvalidRequestError: the request was not accepted.
            StepFailedError: a step failed with it.
            EngineDeadError: the engine's process has ended.
        """
        own = own_params(sampling_params)
        return self._generate(
            prompt, own, request_id, lora_request, trace_headers, priority, timeout
        )

    async def _generate(
        self,
        prompt: PromptInput,
        given: SamplingParams | None,
        request_id: str | None,
        lora_request: LoRARequest | None,
        trace_headers: Mapping[str, str] | None,
        priority: int,
        timeout: float | None,
    ) -> AsyncGenerator[RequestOutput]:
        self._check_lora(lora_request)
        params = self._checked(given)
        arrival = time.monotonic()
        parsed = await self._parsed(prompt, params.truncate_prompt_tokens)
        name = self._new_id(request_id)
        assembler = Assembler(name, parsed, params, self._tokenizer, arrival, lora_request)
        stream = CompletionStream(assembler, self.config.stream_interval)
        if self.request_log is not None:
            self.request_log(stream.request_id, parsed, params, lora_request)
        add = self._request(parsed, params, arrival, priority, timeout, lora_request)
        origin = CLIENT_REQUEST.get() or ClientRequest(stream.request_id, trace_headers or {})
        log = None
        if self.max_logged_output is not None:
            log = OutputLog(stream.request_id, params, self.max_logged_output)
        try:
            async with aclosing(self._engines.outputs(stream, add)) as outputs:
                async for output in outputs:
                    if log is not None:
                        log(output)
                    yield output
        finally:
            if self.tracer is not None:
                headers = origin.headers if trace_headers is None else trace_headers
                name, times = origin.request_id, assembler.metrics
                self.tracer(name, headers, params, times, assembler.num_tokens)

    def encode(
        self,
        prompt: PromptInput,
        pooling_params: PoolingParams | None = None,
        request_id: str | None = None,
        *,
        lora_request: LoRARequest | None = None,
        trace_headers: Mapping[str, str] | None = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> AsyncGenerator[PoolingRequestOutput]:
        """Yields the one output of a pooling request. Arguments and errors as for `generate`.

        Args:
            pooling_params: None: `EngineConfig.pooler_config`.
        """
        own = own_params(pooling_params)
        return self._encode(prompt, own, request_id, lora_request, priority, timeout)

    async def _encode(
        self,
        prompt: PromptInput,
        given: PoolingParams | None,
        request_id: str | None,
        lora_request: LoRARequest | None,
        priority: int,
        timeout: float | None,
    ) -> AsyncGenerator[PoolingRequestOutput]:
        self._check_lora(lora_request)
        params = self.default_pooling() if given is None else given
        if not isinstance(params, PoolingParams):
            raise InvalidRequestError(
                f"pooling_params must be PoolingParams, got {type(params).__name__}"
            )
        arrival = time.monotonic()
        parsed = await self._parsed(prompt, room=0)
        stream = PoolingStream(self._new_id(request_id), parsed)
        if self.request_log is not None:
            self.request_log(stream.request_id, parsed, params, lora_request)
        add = self._request(parsed, params, arrival, priority, timeout, lora_request)
        async with aclosing(self._engines.outputs(stream, add)) as outputs:
            async for output in outputs:
                yield output

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """Ends requests; ids that are not running are ignored.

        Their iterators yield a last output with finish_reason "abort".
        """
        self._engines.abort([request_id] if isinstance(request_id, str) else request_id)

    async def reset_prefix_cache(self) -> bool:
        """As `LLM.reset_prefix_cache`, between two steps."""
        return await self._engines.reset_prefix_caches()

    async def add_lora(self, lora_request: LoRARequest) -> bool:
        """Reads an adapter ahead of its first request, as `LLMEngine.add_lora`; no step waits.

        Raises:
            InvalidRequestError: the engine takes no adapters, or not this one.
        """
        return (await self._add_lora(lora_request))[0]

    async def load_lora(self, lora_request: LoRARequest) -> LoRARequest:
        """As `add_lora`; returns the request for just the version that was read.

        It is found without its files while it is in memory; after that, they must still have it.
        """
        _, digest = await self._add_lora(lora_request)
        return replace(lora_request, digest=digest)

    async def _add_lora(self, lora_request: LoRARequest) -> tuple[bool, str]:
        if lora_request is None:
            raise InvalidRequestError("lora_request must be a LoRARequest, got None")
        self._check_lora(lora_request)
        return await self._engines.add_lora(lora_fields(lora_request))

    async def remove_lora(self, lora_id: int) -> bool:
        """As `LLMEngine.remove_lora`: requests that run with the adapter go on."""
        check_integer("lora_id", lora_id, 1, MAX_ID)
        return await self._engines.remove_lora(int(lora_id))

    async def pin_lora(self, lora_id: int) -> bool:
        """As `LLMEngine.pin_lora`."""
        check_integer("lora_id", lora_id, 1, MAX_ID)
        return await self._engines.pin_lora(int(lora_id))

    async def list_loras(self) -> set[int]:
        """As `LLMEngine.list_loras`."""
        return await self._engines.list_loras()

    async def pause_generation(
        self, *, mode: PauseMode = "abort", clear_cache: bool = True, **_: Any
    ) -> None:
        """Stops stepping; new requests wait. Returns when no step runs any more.

        Args:
            mode: what becomes of running requests: "abort" them, "wait" until they have finished,
                "keep" them as they are until `resume_generation`.
            clear_cache: forget the prefix cache, but with "keep".

        Raises:
            InvalidRequestError: there is no such mode.
        """
        if mode not in get_args(PauseMode):
            raise InvalidRequestError(f"mode must be 'abort', 'wait' or 'keep', got {shown(mode)}")
        await self._engines.pause(mode, clear_cache)
        self._paused = True

    async def resume_generation(self) -> None:
        """Goes on after `pause_generation`."""
        await self._engines.resume()
        self._paused = False

    async def is_paused(self) -> bool:
        return self._paused

    def shutdown(self, timeout: float | None = None) -> None:
        """Ends the engine's process and the threads that tokenise here; iterators that are open
        raise EngineDeadError.

        Args:
            timeout: seconds until the process is killed.
        """
        self._engines.close(CLOSE_S if timeout is None else timeout)
        self._engines.end_all("the engine was shut down")
        if self._encoder is not None:
            self._encoder.close()

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
        engines = getattr(self, "_engines", None)
        if engines is not None:
            engines.close(0.0)

    @property
    def model(self) -> str:
        """The name or path of the model."""
        return self._ready.model

    @property
    def max_model_len(self) -> int:
        """The longest prompt plus output, in tokens."""
        return self._ready.max_model_len

    @property
    def head_task(self) -> str | None:
        """What the model's head is for, as `HeadConfig.task`; None: it has none."""
        return self._ready.head_task

    @property
    def ranks(self) -> bool:
        """Whether its model reads a query and its documents as one prompt."""
        return self.head_task == "token_embed"

    @property
    def labels(self) -> list[str]:
        """The names of the head's scores."""
        return self._ready.labels

    @property
    def token_types(self) -> int:
        """How many types of tokens the model knows: two if it tells a pair's texts apart."""
        return self._ready.token_types

    @property
    def kept_around(self) -> tuple[int, int]:
        """How many special tokens at either end of a text stay if it is cut: see `cut_tokens`."""
        is_encoder = self._ready.is_encoder and self._tokenizer is not None
        return self.text_tokenizer().around if is_encoder else (0, 0)

    async def check_health(self) -> None:
        """Raises EngineDeadError if the engine cannot answer."""
        problem = self._engines.problem()
        if problem is not None:
            raise EngineDeadError(problem)

    @property
    def is_running(self) -> bool:
        """Whether the engine can take requests."""
        return self._engines.problem() is None

    @property
    def errored(self) -> bool:
        """Whether the engine cannot take requests any more."""
        return not self.is_running

    @property
    def dead_error(self) -> BaseException:
        """The error that all requests raise once the engine has ended."""
        return EngineDeadError(self._engines.problem() or "the engine runs")

    @property
    def engine_pid(self) -> int:
        """The id of the first engine's process."""
        return self._engines.pids[0]

    @property
    def engine_pids(self) -> list[int]:
        """The id of each engine's process."""
        return self._engines.pids

    @property
    def num_unfinished_requests(self) -> int:
        """Requests without their last output."""
        return len(self._engines)

    @property
    def num_open_requests(self) -> list[int]:
        """How many requests of each engine have not had their last output."""
        return self._engines.num_open

    @property
    def engines_alive(self) -> list[bool]:
        """Whether each engine can answer."""
        return self._engines.alive

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

    def text_encoder(self) -> TextEncoder:
        """What tokenises texts beside the event loop. Raises as `text_tokenizer`."""
        self.text_tokenizer()
        assert self._encoder is not None
        return self._encoder

    def get_default_sampling_params(self) -> SamplingParams:
        """As `LLM.get_default_sampling_params`."""
        return SamplingParams.from_optional(**self.default_sampling())

    def default_sampling(self) -> dict[str, Any]:
        """The fields of `SamplingParams` that the model's makers suggest."""
        return default_sampling(self.config, Path(self._ready.source))

    def default_pooling(self, task: PoolingTask | None = None) -> PoolingParams:
        """The parameters of a pooling request without any: `EngineConfig.pooler_config`."""
        return default_pooling(self.config.pooler_config, task)

    async def get_stats(self) -> dict[str, Any]:
        """The fields of `EngineStats`, of the first engine."""
        return (await self.get_stats_of_engines())[0]

    async def get_stats_of_engines(self) -> list[dict[str, Any]]:
        """The fields of `EngineStats`, of each engine."""
        return list(await self._engines.ask("stats"))

    async def get_state(self, engine: int = 0) -> dict[str, Any]:
        """The fields of `EngineState`; its requests have their ids, and as "name" the engine's.

        Args:
            engine: the number of one of several engines (`data_parallel_size`).

        Raises:
            InvalidRequestError: there is no engine of that number.
        """
        count = self.config.data_parallel_size
        if not 0 <= engine < count:
            raise InvalidRequestError(f"engine must be from 0 to {count - 1}, got {engine}")
        return await self._engines.state(engine)

    @property
    def step_seconds(self) -> float | None:
        """For how long the current step had run when the engine last said so; None: none ran."""
        return self._engines.step_seconds

    async def get_metrics(self) -> list[dict[str, Any]]:
        """The fields of `LLM.get_metrics`' metrics, and as "kind" the name of each one's class.

        Those of all engines; the label "engine" is an engine's number.
        """
        found = []
        for number, metrics in enumerate(await self._engines.ask("metrics")):
            for one in metrics:
                found.append(one | {"labels": one["labels"] | {"engine": str(number)}})
        return found

    def _checked(self, params: SamplingParams | None) -> SamplingParams:
        params = self.get_default_sampling_params() if params is None else params
        if not isinstance(params, SamplingParams):
            raise InvalidRequestError(
                f"sampling_params must be SamplingParams, got {type(params).__name__}"
            )
        params.__post_init__()
        return params

    def _check_lora(self, lora_request: LoRARequest | None) -> None:
        """Raises InvalidRequestError for what the engine's process could not be asked for."""
        given = checked_lora(lora_request)
        if given is not None and not self.config.enable_lora:
            raise no_lora(given.lora_name)

    async def _parsed(self, prompt: PromptInput, keep: int | None = None, room: int = 1) -> Prompt:
        """A prompt that fits.

        Args:
            keep: As for `truncate_prompt`.
            room: As for `TextEncoder.ids`.
        """
        text, limit = prompt_text(prompt), self.max_model_len
        if text is not None and self._encoder is not None:
            ids = await self._encoder.ids(text, any_length=keep is not None, room=room)
            prompt = with_token_ids(prompt, text, ids)
        predicted = 0 if self.config.speculative_config is None else limit
        text = prediction_text(prompt)
        if predicted and text is not None and self._encoder is not None:
            ids = await self._encoder.first_ids(text, predicted)
            prompt = with_prediction(prompt, ids)
        sizes = self._ready.vocab_size, predicted, self.token_types
        parsed = parse_prompt(prompt, self._tokenizer, *sizes, self.embeds)
        parsed = truncate_prompt(parsed, keep, limit)
        if len(parsed.token_ids) > limit - room:
            raise prompt_too_long(len(parsed.token_ids), limit, room)
        return parsed

    def _new_id(self, request_id: str | None) -> str:
        if request_id is None:
            request_id = f"request-{self._engines.new_name()}"
        check_request_id(request_id)
        self._engines.check_free(request_id)
        return request_id

    def _request(
        self,
        prompt: Prompt,
        params: SamplingParams | PoolingParams,
        arrival: float,
        priority: int,
        timeout: float | None,
        lora_request: LoRARequest | None,
    ) -> Add:
        check_service(self.config.scheduling_policy, priority, timeout)
        fields = params_fields(params)
        fields.pop("truncate_prompt_tokens", None)
        return Add(
            self._engines.new_name(),
            prompt.token_ids,
            fields,
            isinstance(params, PoolingParams),
            arrival,
            prompt.cache_salt,
            priority,
            timeout,
            streams(params),
            prompt.prediction,
            None if lora_request is None else lora_fields(lora_request),
            prompt.token_type_ids,
            None if prompt.embeds is None else prompt.embeds.tobytes(),
        )


AsyncLLMEngine = AsyncLLM
