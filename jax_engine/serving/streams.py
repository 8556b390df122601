"""The outputs of one request, as its client reads them.

News arrive with each step, whether somebody reads or not. What arrived since the last reading is
read as one output, so a slow reader delays nobody and holds only what it has not read.
"""

import asyncio
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from jax_engine.engine.prompts import Prompt
from jax_engine.engine.sequence_text import SequenceText
from jax_engine.logprobs import FlatLogprobs, Logprob
from jax_engine.outputs import (
    CompletionOutput,
    PoolingOutput,
    PoolingRequestOutput,
    RequestMetrics,
    RequestOutput,
)
from jax_engine.sampling_params import RequestOutputKind, SamplingParams
from jax_engine.serving.messages import News, Piece, Pooled
from jax_engine.serving.wire_params import is_ranked
from jax_engine.tokenization.tokenizer import Tokenizer


class Stream[Output]:
    """Outputs of a request for one reader.

    Attributes:
        request_id: the client's name of the request.
        ended: whether the last output, or an error, has arrived.
    """

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.ended = False
        self._arrived = asyncio.Event()
        self._error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """Ends the stream with an error."""
        self._error, self.ended = error, True
        self._arrived.set()

    async def next(self) -> Output | None:
        """The next output; None behind the last one. Raises the error that ended the stream."""
        while True:
            if not self.ended:
                await self._arrived.wait()
            self._arrived.clear()
            if self._error is not None:
                raise self._error
            output = self.read()
            if output is not None or self.ended:
                return output

    def read(self) -> Output | None:
        """What has arrived since the last reading, as one output; None if nothing has."""
        raise NotImplementedError


class PoolingStream(Stream[PoolingRequestOutput]):
    """The one output of a pooling request."""

    def __init__(self, request_id: str, prompt: Prompt) -> None:
        super().__init__(request_id)
        self._prompt = prompt
        self._output: PoolingRequestOutput | None = None

    def take(self, pooled: Pooled) -> None:
        """Takes the output."""
        data = np.frombuffer(pooled.data, pooled.dtype).reshape(pooled.shape)
        self._output = PoolingRequestOutput(
            self.request_id, PoolingOutput(data), self._prompt.token_ids, pooled.finished
        )
        self.ended = True
        self._arrived.set()

    def read(self) -> PoolingRequestOutput | None:
        """As `Stream.read`."""
        output, self._output = self._output, None
        return output


@dataclass(slots=True)
class _Sample:
    """One sequence so far, and how much of it has been read.

    Attributes:
        text: makes its text; None if the engine does, or nobody wants it.
    """

    text: SequenceText | None
    given_text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: FlatLogprobs | None = None
    cumulative_logprob: float | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    read: tuple[int, int, bool] = (0, 0, False)  # tokens, characters, the end

    @property
    def all_text(self) -> str:
        return self.given_text if self.text is None else self.text.text


class CompletionStream(Stream[RequestOutput]):
    """Outputs of a request that generates, of the kind that its parameters ask for.

    Args:
        tokenizer: makes the text, and the words of log-probabilities; None: there is no text.
        has_text: whether the engine's process makes the text.
        interval: of the reader: see `EngineConfig.stream_interval`.
    """

    def __init__(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams,
        tokenizer: Tokenizer | None,
        *,
        has_text: bool,
        interval: int,
        arrival_time: float,
    ) -> None:
        super().__init__(request_id)
        self._prompt, self._params = prompt, params
        self._tokenizer = tokenizer if params.detokenize else None
        self._has_text, self._interval = has_text, interval
        self._samples: dict[int, _Sample] = {}
        self._order: list[int] = []
        self._metrics = RequestMetrics(arrival_time)
        self._num_cached = 0
        self._prompt_logprobs: FlatLogprobs | None = None
        self._fresh = False
        self._word = cache(self._decoded)

    @property
    def metrics(self) -> RequestMetrics:
        """Its times so far."""
        return self._metrics

    @property
    def num_tokens(self) -> tuple[int, int]:
        """Tokens of the prompt, and of all outputs so far."""
        generated = sum(len(one.token_ids) for one in self._samples.values())
        return len(self._prompt.token_ids), generated

    def take(self, news: News) -> None:
        """Takes what a step gave."""
        for piece in news.pieces:
            self._add(piece)
        if is_ranked(self._params):  # all at once, best first
            self._order = [piece.index for piece in news.pieces]
        self._num_cached = news.num_cached_tokens
        self._metrics.first_token_time = news.first_token_time
        self._metrics.finished_time = news.finished_time
        if news.end_times is not None:
            times = self._metrics
            times.queued_time, times.scheduled_time, times.last_token_time = news.end_times
        self._prompt_logprobs = news.prompt_logprobs or self._prompt_logprobs
        self.ended = self.ended or news.finished
        if self.ended or self._is_due():
            self._fresh = True
            self._arrived.set()

    def _is_due(self) -> bool:
        """Whether the reader is woken before the end."""
        if self._params.output_kind is RequestOutputKind.FINAL_ONLY:
            return False
        return any(_is_due(one, self._interval) for one in self._samples.values())

    def _add(self, piece: Piece) -> None:
        sample = self._samples.get(piece.index)
        if sample is None:
            sample = self._samples[piece.index] = _Sample(self._new_text())
        sample.token_ids += piece.token_ids
        sample.cumulative_logprob = piece.cumulative_logprob
        if piece.logprobs is not None:
            sample.logprobs = sample.logprobs or FlatLogprobs()
            for entries in piece.logprobs:
                sample.logprobs.append(self._with_words(entries))
        sample.finish_reason, sample.stop_reason = piece.finish_reason, piece.stop_reason
        if piece.text is not None:
            sample.given_text += piece.text
        elif sample.text is not None:
            self._add_text(sample.text, piece)

    def _add_text(self, text: SequenceText, piece: Piece) -> None:
        tokens = piece.token_ids
        by_token = piece.finish_reason == "stop" and not isinstance(piece.stop_reason, str)
        if by_token and not self._params.include_stop_str_in_output:
            tokens = tokens[:-1]  # a token that ends the output is not part of its text
        if tokens:
            text.add(tokens)
        if piece.finish_reason is not None:
            text.finish()

    def _new_text(self) -> SequenceText | None:
        if self._has_text or self._tokenizer is None:
            return None
        return SequenceText(self._tokenizer, self._prompt.token_ids, self._params)

    def _decoded(self, token_id: int) -> str | None:
        if self._tokenizer is None:
            return None
        return self._tokenizer.decode([token_id], skip_special_tokens=False)

    def _with_words(self, entries: dict[int, Logprob] | None) -> dict[int, Logprob] | None:
        if entries is None:
            return None
        return {
            token: Logprob(one.logprob, one.rank, self._word(token))
            for token, one in entries.items()
        }

    def read(self) -> RequestOutput | None:
        """As `Stream.read`."""
        if not self._fresh:
            return None
        self._fresh = False
        delta = self._params.output_kind is RequestOutputKind.DELTA
        order = self._order or sorted(self._samples)
        samples = [(index, self._samples[index]) for index in order]
        if delta:
            samples = [(index, one) for index, one in samples if _has_news(one)]
        prompt_logprobs = self._prompt_logprobs
        if delta:
            self._prompt_logprobs = None
        return RequestOutput(
            request_id=self.request_id,
            prompt=self._prompt.text,
            prompt_token_ids=self._prompt.token_ids,
            outputs=[self._completion(index, one, delta=delta) for index, one in samples],
            finished=self.ended,
            num_cached_tokens=self._num_cached,
            metrics=self._metrics.copy(),
            prompt_logprobs=self._prompt_entries(prompt_logprobs),
        )

    def _prompt_entries(
        self, flat: FlatLogprobs | None
    ) -> "list[dict[int, Logprob] | None] | FlatLogprobs | None":
        if flat is None:
            return None
        entries = [self._with_words(one) for one in flat]
        return FlatLogprobs.of(entries) if self._params.flat_logprobs else entries

    def _completion(self, index: int, sample: _Sample, *, delta: bool) -> CompletionOutput:
        tokens, chars, _ = sample.read if delta else (0, 0, False)
        text = sample.all_text
        sample.read = len(sample.token_ids), len(text), sample.finish_reason is not None
        logprobs = sample.logprobs
        if logprobs is not None:
            logprobs = logprobs[tokens:]
        return CompletionOutput(
            index=index,
            text=text[chars:],
            token_ids=sample.token_ids[tokens:],
            cumulative_logprob=sample.cumulative_logprob,
            logprobs=logprobs if self._params.flat_logprobs or logprobs is None else list(logprobs),  # type: ignore[arg-type]
            finish_reason=sample.finish_reason,
            stop_reason=sample.stop_reason,
        )


def _is_due(sample: _Sample, interval: int) -> bool:
    """Whether a sample has its first token, its last, or `interval` tokens that nobody has read."""
    tokens, _, _ = sample.read
    due = tokens == 0 or len(sample.token_ids) - tokens >= interval
    return _has_news(sample) and (due or sample.finish_reason is not None)


def _has_news(sample: _Sample) -> bool:
    tokens, _, ended = sample.read
    return len(sample.token_ids) > tokens or (sample.finish_reason is not None and not ended)
