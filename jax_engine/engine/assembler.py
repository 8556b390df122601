"""Makes a request's outputs of its pieces: the one place where `RequestOutput`s are made.

It is beside whoever reads: in the engine's process for `LLMEngine.step` and `LLM`, in the server's
API process for `AsyncLLM`. What it was given since the last reading is read as one output.

`SequenceText` is the text of one sequence as its tokens arrive, and the stop strings in it.
"""

from dataclasses import dataclass
from itertools import accumulate, islice

from jax_engine.engine.engine_core_output import EngineCoreOutput, LogprobLists, SequenceOutput
from jax_engine.engine.requests.prompts import Prompt
from jax_engine.lora.request import LoRARequest
from jax_engine.outputs import (
    CompletionOutput,
    FlatLogprobs,
    Logprob,
    RequestMetrics,
    RequestOutput,
)
from jax_engine.sampling_params import RequestOutputKind, SamplingParams
from jax_engine.tokenization.detokenizer import IncrementalDetokenizer, StopChecker
from jax_engine.tokenization.tokenizer import Tokenizer


class SequenceText:
    """Constant work a token: new text is decoded once, checked once and returned once.

    Attributes:
        stopped_by: The stop string that was found, else None.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt_token_ids: list[int], params: SamplingParams
    ) -> None:
        self.stopped_by: str | None = None
        self._detokenizer = IncrementalDetokenizer(
            tokenizer, prompt_token_ids, skip_special_tokens=params.skip_special_tokens
        )
        stops, self._includes_stop = params.stop_strings, params.include_stop_str_in_output
        self._stops = StopChecker(stops, self._includes_stop) if stops else None
        self._min_tokens = params.min_tokens
        self._num_tokens = 0

    def take(
        self,
        token_ids: list[int],
        finish_reason: str | None = None,
        stop_reason: int | str | None = None,
    ) -> str:
        """Takes new output tokens; nothing more is taken once a stop string was found.

        Where there are stop strings, one token at a time: a string ends the output if the text of a
        token after the first `min_tokens` completes it.

        Args:
            finish_reason, stop_reason: As in `CompletionOutput`, with the last tokens.

        Returns:
            The text that is now certain: no half characters, nothing that may be the beginning of a
            stop string. A token that ended the output is not text. At the end, all that is left.
        """
        if self.stopped_by is not None:
            return ""
        ended_by_token = finish_reason == "stop" and not isinstance(stop_reason, str)
        if ended_by_token and not self._includes_stop:
            token_ids = token_ids[:-1]
        self._num_tokens += len(token_ids)
        text = self._certain(self._detokenizer.add(token_ids))
        return text if finish_reason is None else text + self._rest()

    def _certain(self, text: str) -> str:
        if self._stops is None:
            return text
        may_end = self._num_tokens > self._min_tokens
        text, self.stopped_by = self._stops.add(text, may_end=may_end)
        return text

    def _rest(self) -> str:
        """What was held back."""
        if self.stopped_by is not None:
            return ""
        text = self._certain(self._detokenizer.flush())
        if self._stops is not None and self.stopped_by is None:
            text += self._stops.flush()
        return text


type Positions = list[dict[int, Logprob] | None] | FlatLogprobs


@dataclass(slots=True)
class _Sample:
    """One sequence: all of it so far, or of a request that gives deltas what was not read yet.

    Attributes:
        maker: Makes its text; None if the engine does, or nobody wants it.
        num_tokens, num_read: How many tokens it has, and how many of them were read.
        end_read: Whether its end was read.
    """

    maker: SequenceText | None
    token_ids: list[int]
    logprobs: Positions | None = None
    text: str = ""
    cumulative_logprob: float | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    num_tokens: int = 0
    num_read: int = 0
    end_read: bool = False

    @property
    def has_output(self) -> bool:
        ended = self.finish_reason is not None
        return self.num_tokens > self.num_read or (ended and not self.end_read)

    def is_due(self, interval: int) -> bool:
        """Whether its first token, its last, or `interval` tokens were not read."""
        full = self.num_read == 0 or self.num_tokens - self.num_read >= interval
        return self.has_output and (full or self.finish_reason is not None)


class Assembler:
    """Outputs of one request that generates, of the kind that its parameters ask for.

    Deltas hold what is new; the cumulative log-probability is the whole sequence's, and only the
    first delta holds the prompt's log-probabilities.

    Args:
        request_id: The client's name of the request.
        tokenizer: Makes the text, and the words of log-probabilities; None: there is no text.
        arrival_time: In seconds of `time.monotonic()`.
        lora: The request's adapter, as it asked for it.

    Attributes:
        finished: Whether the last output was taken.
        metrics: The request's times so far; replaced when there are more.
    """

    def __init__(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams,
        tokenizer: Tokenizer | None,
        arrival_time: float,
        lora: LoRARequest | None = None,
    ) -> None:
        self.request_id = request_id
        self.finished = False
        self.metrics = RequestMetrics(arrival_time)
        self._prompt, self._params, self._lora = prompt, params, lora
        self._tokenizer = tokenizer if params.detokenize else None
        self._deltas = params.output_kind is RequestOutputKind.DELTA
        self._samples: dict[int, _Sample] = {}
        self._order: list[int] | None = None
        self._num_cached = 0
        self._prompt_logprobs: Positions | None = None
        self._words: dict[int, str] = {}

    @property
    def num_tokens(self) -> tuple[int, int]:
        """Tokens of the prompt, and of all outputs so far."""
        generated = sum(one.num_tokens for one in self._samples.values())
        return len(self._prompt.token_ids), generated

    def take(self, core_output: EngineCoreOutput) -> None:
        """Takes what is new. Its lists are the assembler's from now on."""
        for output in core_output.outputs:
            self._add(output)
        self.finished, self._num_cached = core_output.finished, core_output.num_cached_tokens
        if core_output.finished and self._params.is_ranked:
            self._order = [output.index for output in core_output.outputs]
        if core_output.times is not None:
            times = self.metrics.arrival_time, *core_output.times
            self.metrics = RequestMetrics(*times, *core_output.drafts)
        if core_output.prompt_logprobs is not None:
            self._prompt_logprobs = self._positions(core_output.prompt_logprobs)

    def is_due(self, interval: int) -> bool:
        """Whether a reader is told before the end; see `EngineConfig.stream_interval`."""
        if self._params.output_kind is RequestOutputKind.FINAL_ONLY:
            return False
        return any(one.is_due(interval) for one in self._samples.values())

    def read(self) -> RequestOutput:
        """The request's state, or what is new in it. A returned output never changes later."""
        order = sorted(self._samples) if self._order is None else self._order
        chosen = [(index, self._samples[index]) for index in order]
        if self._deltas:
            chosen = [(index, one) for index, one in chosen if one.has_output]
        prompt_logprobs = self._prompt_logprobs
        if self._deltas:
            self._prompt_logprobs = None
        return RequestOutput(
            request_id=self.request_id,
            prompt=self._prompt.text,
            prompt_token_ids=self._prompt.token_ids,
            outputs=[self._completion(index, one) for index, one in chosen],
            finished=self.finished,
            num_cached_tokens=self._num_cached,
            metrics=self.metrics,
            prompt_logprobs=prompt_logprobs,
            lora_request=self._lora,
        )

    def _completion(self, index: int, sample: _Sample) -> CompletionOutput:
        sample.num_read, sample.end_read = sample.num_tokens, sample.finish_reason is not None
        text, token_ids, logprobs = sample.text, sample.token_ids, sample.logprobs
        if self._deltas:
            sample.text, sample.token_ids, sample.logprobs = "", [], None
        elif not self.finished:  # the sample's lists will grow
            token_ids, logprobs = token_ids[:], None if logprobs is None else logprobs[:]
        return CompletionOutput(
            index=index,
            text=text,
            token_ids=token_ids,
            cumulative_logprob=sample.cumulative_logprob,
            logprobs=logprobs,  # type: ignore[arg-type]  # there is an entry for each token
            finish_reason=sample.finish_reason,
            stop_reason=sample.stop_reason,
        )

    def _add(self, output: SequenceOutput) -> None:
        sample = self._samples.get(output.index)
        if sample is None:
            sample = self._samples[output.index] = self._new_sample(output)
        if sample.token_ids:
            sample.token_ids += output.token_ids
        else:
            sample.token_ids = output.token_ids
        sample.num_tokens += len(output.token_ids)
        sample.cumulative_logprob = output.cumulative_logprob
        if output.logprobs is not None:
            new = self._positions(output.logprobs)
            if sample.logprobs is None:
                sample.logprobs = new
            else:
                sample.logprobs.extend(new)
        if output.text is not None:
            sample.text += output.text
        elif sample.maker is not None and sample.finish_reason is None:
            reasons = output.finish_reason, output.stop_reason
            sample.text += sample.maker.take(output.token_ids, *reasons)
        sample.finish_reason, sample.stop_reason = output.finish_reason, output.stop_reason

    def _new_sample(self, output: SequenceOutput) -> _Sample:
        maker = None
        if output.text is None and self._tokenizer is not None:
            maker = SequenceText(self._tokenizer, self._prompt.known_ids, self._params)
        return _Sample(maker, [])

    def _positions(self, lists: LogprobLists) -> Positions:
        """With words, in the form that the request asks for."""
        words = self._words_of(lists.token_ids)
        if self._params.flat_logprobs:
            places = list(accumulate(lists.counts, initial=0))
            return FlatLogprobs(
                places[:-1], places[1:], lists.token_ids, lists.logprobs, lists.ranks, words
            )
        entries = zip(
            lists.token_ids, map(Logprob, lists.logprobs, lists.ranks, words), strict=True
        )
        return [dict(islice(entries, count)) or None for count in lists.counts]

    def _words_of(self, token_ids: list[int]) -> list[str | None]:
        """Each token's own text."""
        if self._tokenizer is None:
            return [None] * len(token_ids)
        words, decode = self._words, self._tokenizer.decode
        for token in token_ids:
            if token not in words:
                words[token] = decode([token], skip_special_tokens=False)
        return [words[token] for token in token_ids]
