"""What the engine keeps of an unfinished request beside the scheduler's group."""

from dataclasses import dataclass, field, replace

from jax_engine.core.output import ScheduledSequence
from jax_engine.core.sequence import Sequence, SequenceGroup
from jax_engine.engine.mailbox import Mailbox
from jax_engine.engine.pooling import PooledParams, PooledPrompt
from jax_engine.engine.prompts import Prompt
from jax_engine.engine.sequence_text import SequenceText
from jax_engine.engine.token_logprobs import sampled_logprobs, token_logprobs
from jax_engine.logprobs import FlatLogprobs, Logprob
from jax_engine.outputs import (
    AnyRequestOutput,
    CompletionOutput,
    PoolingOutput,
    PoolingRequestOutput,
    RequestMetrics,
    RequestOutput,
)
from jax_engine.sampling_params import RequestOutputKind, SamplingParams
from jax_engine.step import StepResult
from jax_engine.tokenization.tokenizer import Tokenizer


@dataclass(slots=True)
class SequenceOutput:
    """Text and log-probabilities of one of a request's sequences, as they arrive.

    Attributes:
        num_tokens_given: Output tokens that earlier deltas held.
        num_chars_given: Characters that earlier deltas held.
        end_given: Whether a delta said that it finished.
    """

    text: SequenceText | None
    logprobs: list[dict[int, Logprob]] | FlatLogprobs | None
    cumulative_logprob: float = 0.0
    num_tokens_given: int = 0
    num_chars_given: int = 0
    end_given: bool = False


@dataclass(slots=True)
class RequestState:
    """One unfinished request.

    Attributes:
        mailbox: Where its end is to go; None if `LLMEngine.step` returns it.
        sequences: By sequence index, made when first needed.
        deltas: Whether an output holds only what is new since the one before.
        streams: Whether there is an output each step.
        every_token: Whether each token must be looked at as it comes (streamed text, stop
            strings, log-probabilities); if not, all the text is decoded at the end.
        prompt_logprobs: By position, as they are computed; None if they are not wanted.
        prompt_given: Whether a delta held the prompt's log-probabilities.
        pooled: The prompt's hidden states; None if they are not wanted.
    """

    prompt: Prompt
    params: SamplingParams
    group: SequenceGroup
    metrics: RequestMetrics
    tokenizer: Tokenizer | None
    mailbox: Mailbox | None = None
    sequences: dict[int, SequenceOutput] = field(default_factory=dict)
    deltas: bool = field(init=False)
    streams: bool = field(init=False)
    every_token: bool = field(init=False)
    prompt_logprobs: list[dict[int, Logprob] | None] | None = field(init=False, default=None)
    prompt_given: bool = field(init=False, default=False)
    pooled: PooledPrompt | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.params.prompt_logprobs is not None:
            self.prompt_logprobs = [None] * self.group.prompt_len
        if isinstance(self.params, PooledParams):
            self.pooled = PooledPrompt(self.params)
        if self.params.use_beam_search:  # which tokens are in an output is known at its end
            self.streams = self.deltas = self.every_token = False
            return
        kind = self.params.output_kind
        self.deltas = kind is RequestOutputKind.DELTA
        self.streams = kind is not RequestOutputKind.FINAL_ONLY
        stops = bool(self.params.stop)
        self.every_token = self.streams or stops or self.params.needs_logprobs

    def take_prompt(
        self, item: ScheduledSequence, index: int, row: int, result: StepResult
    ) -> None:
        """Takes what a step computed of the prompt, the first time: outputs may hold it already.

        Args:
            index: Of the sequence in the step.
            row: Of its first token in the step.
        """
        if self.pooled is not None and result.hidden is not None:
            self.pooled.add(item, result.hidden, index, row)
        if self.prompt_logprobs is None or result.prompt is None:
            return
        num_top = self.params.prompt_logprobs or 0
        end = min(item.start + item.num_tokens + 1, self.group.prompt_len)
        for position in range(item.start + 1, end):
            if self.prompt_logprobs[position] is not None:  # the request was computed again
                continue
            token = self.prompt.token_ids[position]
            self.prompt_logprobs[position] = token_logprobs(
                result.prompt, row + position - item.start - 1, token, num_top, self._word
            )

    def final_output(self) -> AnyRequestOutput:
        """The last output of the request, whether it finished or was aborted."""
        if self.pooled is None:
            return self.request_output(finished=True)
        return PoolingRequestOutput(
            self.group.request_id,
            PoolingOutput(self.pooled.data()),
            self.prompt.token_ids,
            finished=self.group.seqs[0].finish_reason != "abort",
        )

    def add_token(self, seq: Sequence, row: int, result: StepResult) -> str | None:
        """Takes the token just appended to `seq`; returns the stop string it completed, if any."""
        output = self._sequence_output(seq)
        token = seq.token_ids[-1]
        if self.params.needs_logprobs:
            logprobs = result.logprobs
            assert logprobs is not None
            output.cumulative_logprob += float(logprobs.logprobs[row])
            if output.logprobs is not None:
                entry = sampled_logprobs(
                    logprobs, result.logits, row, token, self.params, self._word
                )
                output.logprobs.append(entry)
        if output.text is None:
            return None
        if self._is_text(seq):
            output.text.add([token])
        if seq.finish_reason is not None:
            output.text.finish()
        return output.text.stopped_by

    def _rank(self, seq: Sequence) -> tuple[bool, float]:
        """The most probable first; one without a token, after an abort, behind all others."""
        return not seq.output_len, -self._sequence_output(seq).cumulative_logprob

    def request_output(self, *, finished: bool) -> RequestOutput:
        """The request as of now; of best_of sequences the n most probable, or of the best score.

        With `RequestOutputKind.DELTA`, what is new since the last call. Nothing in an output
        changes after it was given out.
        """
        seqs = self.group.seqs
        beams = self.params.use_beam_search  # they are in order
        if self.params.num_samples > self.params.n and finished and not beams:
            seqs = sorted(seqs, key=self._rank)
        seqs = seqs[: self.params.n]
        if self.deltas:
            outputs = [self._delta(seq) for seq in seqs if self._has_news(seq)]
        else:
            outputs = [self._completion(seq) for seq in seqs if self._has_begun(seq)]
        prompt_logprobs: list[dict[int, Logprob] | None] | FlatLogprobs | None = (
            None if self.prompt_given else self.prompt_logprobs
        )
        if prompt_logprobs is not None and self.params.flat_logprobs:
            prompt_logprobs = FlatLogprobs.of(prompt_logprobs)
        self.prompt_given = self.deltas
        return RequestOutput(
            request_id=self.group.request_id,
            prompt=self.prompt.text,
            prompt_token_ids=self.prompt.token_ids,
            outputs=outputs,
            finished=finished,
            num_cached_tokens=self.group.num_cached_tokens or 0,
            metrics=replace(self.metrics),
            prompt_logprobs=prompt_logprobs,
        )

    def _has_begun(self, seq: Sequence) -> bool:
        """False for the sequence that a part of the samples will begin with."""
        return seq.output_len > 0 or seq.finish_reason is not None

    def _has_news(self, seq: Sequence) -> bool:
        output = self._sequence_output(seq)
        ended = seq.finish_reason is not None and not output.end_given
        return ended or seq.output_len > output.num_tokens_given

    def _delta(self, seq: Sequence) -> CompletionOutput:
        """What is new of a sequence; the cumulative log-probability is that of all of it."""
        output = self._sequence_output(seq)
        delta = self._completion(seq, output.num_tokens_given, output.num_chars_given)
        output.num_tokens_given += len(delta.token_ids)
        output.num_chars_given += len(delta.text)
        output.end_given = seq.finish_reason is not None
        return delta

    def _completion(
        self, seq: Sequence, first_token: int = 0, first_char: int = 0
    ) -> CompletionOutput:
        output, text = self._sequence_output(seq), ""
        token_ids = seq.token_ids[self.group.prompt_len + first_token :]
        if output.text is not None:
            if not self.every_token:
                ended_by_token = token_ids and not self._is_text(seq)
                output.text.add(token_ids[:-1] if ended_by_token else token_ids)
                output.text.finish()
            elif seq.finish_reason == "abort":
                output.text.finish()  # what was held back for tokens that will not come
            text = output.text.text[first_char:]
        if self.params.use_beam_search:
            output.cumulative_logprob = seq.cumulative_logprob
            output.logprobs = [
                {token: Logprob(logprob, rank, self._word(token))}
                for token, (logprob, rank) in zip(token_ids, seq.token_logprobs, strict=True)
            ]
        return CompletionOutput(
            index=seq.index,
            text=text,
            token_ids=token_ids,
            cumulative_logprob=output.cumulative_logprob if self.params.needs_logprobs else None,
            logprobs=None if output.logprobs is None else output.logprobs[first_token:],
            finish_reason=seq.finish_reason,
            stop_reason=seq.stop_reason,
        )

    def _is_text(self, seq: Sequence) -> bool:
        """False for an end-of-sequence or stop token, which is not part of the text."""
        ended_by_token = seq.finish_reason == "stop" and not isinstance(seq.stop_reason, str)
        return not ended_by_token or self.params.include_stop_str_in_output

    def _sequence_output(self, seq: Sequence) -> SequenceOutput:
        output = self.sequences.get(seq.index)
        if output is None:
            text = None
            if self.tokenizer is not None and self.params.detokenize:
                text = SequenceText(self.tokenizer, self.prompt.token_ids, self.params)
            wanted: list[dict[int, Logprob]] | FlatLogprobs | None = None
            if self.params.logprobs is not None or self.params.logprob_token_ids is not None:
                wanted = FlatLogprobs() if self.params.flat_logprobs else []
            output = self.sequences[seq.index] = SequenceOutput(text, wanted)
        return output

    def _word(self, token_id: int) -> str | None:
        if self.tokenizer is None or not self.params.detokenize:
            return None
        return self.tokenizer.decode([token_id], skip_special_tokens=False)
