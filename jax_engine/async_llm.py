"""`AsyncLLM`: prompts in, streams of outputs out, with the engine in a process of its own."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from jax_engine.config import EngineConfig
from jax_engine.engine.batch import refuse_adapters
from jax_engine.engine.default_sampling import default_sampling
from jax_engine.engine.prompts import (
    Prompt,
    PromptInput,
    parse_prompt,
    prompt_text,
    truncate_prompt,
)
from jax_engine.engine.request_checks import check_request_id, check_service
from jax_engine.engine_args import EngineArgs
from jax_engine.errors import EngineDeadError, InvalidRequestError
from jax_engine.models.resolve import HubOptions
from jax_engine.outputs import PoolingRequestOutput, RequestOutput
from jax_engine.pooling_params import PoolingParams
from jax_engine.sampling_params import SamplingParams
from jax_engine.serving.engine_client import EngineClient, error_of
from jax_engine.serving.messages import (
    Abort,
    Add,
    Answer,
    Ask,
    News,
    Outputs,
    Pooled,
    Question,
    Refused,
    Report,
)
from jax_engine.serving.streams import CompletionStream, PoolingStream, Stream
from jax_engine.serving.wire_params import needs_text, written
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer

LONG_TEXT = 4096  # characters; longer prompts are tokenised in another thread
CLOSE_S = 5.0  # how long the engine's process may take to end


class AsyncLLM:
    """An engine for asyncio. All its methods are called in one event loop.

    Args:
        settings: as for `LLM`, but for what is not plain data (functions and classes).

    Raises:
        JaxEngineError: as `LLM`.
        EngineDeadError: the engine's process ended while it started.
    """

    def __init__(self, model: str | None = None, **settings: Any) -> None:
        self.config = EngineConfig.from_settings(model=model, **settings)
        self._client = EngineClient({"model": model, **settings})
        self._ready = self._client.ready
        self._tokenizer = self._own_tokenizer()
        self._streams: dict[str, Stream[Any]] = {}  # by the name that the engine knows
        self._names: dict[str, str] = {}  # request id: that name
        self._numbers = itertools.count()
        self._answers: dict[int, asyncio.Future[Any]] = {}

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs, **ignored: Any) -> Self:
        """An engine with these settings. Raises the same errors as `AsyncLLM`."""
        return cls(**vars(engine_args))

    def _own_tokenizer(self) -> Tokenizer | None:
        config = self.config
        if config.skip_tokenizer_init:
            return None
        revision = config.tokenizer_revision or config.revision
        hub = HubOptions(revision, config.download_dir, config.hf_token)
        return load_tokenizer(config.tokenizer or self._ready.source, hub)

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
            priority, timeout: as for `LLMEngine.add_request`.

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
        async for output in self._outputs(stream, add):
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
        async for output in self._outputs(stream, add):
            yield output

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """Ends requests; ids that are not running are ignored.

        Their iterators yield a last output with finish_reason "abort".
        """
        ids = [request_id] if isinstance(request_id, str) else list(request_id)
        names = [self._names[one] for one in ids if one in self._names]
        if names:
            self._client.send(Abort(names))

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
        return len(self._streams)

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
        return SamplingParams.from_optional(
            **default_sampling(self.config, Path(self._ready.source))
        )

    async def get_stats(self) -> dict[str, Any]:
        """The fields of `EngineStats`."""
        stats: dict[str, Any] = await self._ask("stats")
        return stats

    async def reset_prefix_cache(self) -> bool:
        """As `LLM.reset_prefix_cache`, between two steps."""
        return bool(await self._ask("reset_prefix_cache"))

    def shutdown(self, timeout: float | None = None) -> None:
        """Ends the engine's process; iterators that are open raise EngineDeadError.

        Args:
            timeout: seconds until the process is killed.
        """
        self._client.close(CLOSE_S if timeout is None else timeout)
        self._end_all("the engine was shut down")

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
            request_id = f"request-{next(self._numbers)}"
        check_request_id(request_id)
        if request_id in self._names:
            raise InvalidRequestError(f"request_id {request_id!r} is already running: use another")
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
        # The engine never sees the same name twice: an id may be used again at once.
        name = str(next(self._numbers))
        return Add(
            name, prompt.token_ids, params, pooling, arrival, prompt.cache_salt, priority, timeout
        )

    async def _outputs[Output](self, stream: Stream[Output], add: Add) -> AsyncIterator[Output]:
        self._client.listen(self._take, self._end_all)
        self._client.send(add)
        name = add.request_id
        self._streams[name], self._names[stream.request_id] = stream, name
        try:
            while (output := await stream.next()) is not None:
                yield output
        finally:
            self._forget(name)
            if not stream.ended and self.is_running:
                self._client.send(Abort([name]))

    def _forget(self, name: str) -> None:
        stream = self._streams.pop(name, None)
        if stream is not None and self._names.get(stream.request_id) == name:
            del self._names[stream.request_id]

    def _take(self, report: Report) -> None:
        if isinstance(report, Outputs):
            for one in report.outputs:
                self._take_output(one)
        elif isinstance(report, Answer):
            self._take_answer(report)

    def _take_output(self, output: News | Pooled | Refused) -> None:
        stream = self._streams.get(output.request_id)
        if stream is None:  # its reader has left
            return
        if isinstance(output, Refused):
            stream.fail(error_of(output.error, output.message))
        elif isinstance(output, News):
            assert isinstance(stream, CompletionStream)
            stream.take(output)
        else:
            assert isinstance(stream, PoolingStream)
            stream.take(output)
        if stream.ended:  # its id is free again, though its reader may not have read the end
            self._forget(output.request_id)

    async def _ask(self, question: Question) -> Any:
        self._client.listen(self._take, self._end_all)
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            self._client.send(Ask(number, question))
            return await self._answers[number]
        finally:
            del self._answers[number]

    def _take_answer(self, answer: Answer) -> None:
        future = self._answers.get(answer.number)
        if future is None or future.done():
            return
        if answer.error is not None:
            future.set_exception(error_of("JaxEngineError", answer.error))
        else:
            future.set_result(answer.value)

    def _end_all(self, problem: str) -> None:
        """The engine's process has ended: so does everything that waits for it."""
        for stream in self._streams.values():
            stream.fail(EngineDeadError(problem))
        for future in self._answers.values():
            if not future.done():
                future.set_exception(EngineDeadError(problem))
        self._streams.clear()
        self._names.clear()


AsyncLLMEngine = AsyncLLM
