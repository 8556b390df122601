"""A request's results, and how they are returned: at the end, cumulative, as deltas, or as beams.

Pooling requests have results of another kind (`pooling.PooledResults`).
"""

from jax_engine.core.scheduler_output import ScheduledSequence
from jax_engine.core.sequence import Sequence
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.engine.prompts import Prompt
from jax_engine.engine.sequence_results import SequenceResults
from jax_engine.engine.sequence_text import SequenceText
from jax_engine.engine.token_logprobs import token_logprobs
from jax_engine.logprobs import FlatLogprobs, Logprob
from jax_engine.outputs import CompletionOutput, RequestMetrics, RequestOutput
from jax_engine.sampling_params import RequestOutputKind, SamplingParams
from jax_engine.step import StepResult
from jax_engine.tokenization.tokenizer import Tokenizer

type PromptLogprobs = list[dict[int, Logprob] | None] | FlatLogprobs


class FinalResults:
    """One output, when the request has ended (`RequestOutputKind.FINAL_ONLY`).

    Attributes:
        streams: Whether there is an output after each step that drew tokens for the request.
        every_token: Whether each token must be processed when it is sampled (streamed text, stop
            strings, log-probabilities); if not, all text is decoded at the end.
        counts_samples: Whether each token that is sampled is one of its output.
    """

    streams = False
    counts_samples = True

    def __init__(
        self,
        prompt: Prompt,
        params: SamplingParams,
        group: SequenceGroup,
        tokenizer: Tokenizer | None,
    ) -> None:
        sampled_logprobs = params.needs_logprobs and not params.use_beam_search
        self.every_token = self.streams or bool(params.stop) or sampled_logprobs
        self._prompt = prompt
        self._params = params
        self._group = group
        self._tokenizer = tokenizer if params.detokenize else None
        self._sequences: dict[int, SequenceResults] = {}
        self._prompt_logprobs: list[dict[int, Logprob] | None] | None = None
        if params.prompt_logprobs is not None:
            self._prompt_logprobs = [None] * group.prompt_len

    @property
    def num_generated(self) -> int:
        """Output tokens of all sequences."""
        return sum(seq.output_len for seq in self._group.seqs)

    def take_prompt(
        self, item: ScheduledSequence, index: int, row: int, result: StepResult
    ) -> None:
        """Takes a chunk's prompt log-probabilities; keeps those it has, as outputs may hold them.

        Args:
            index: The sequence's place in the step.
            row: Its first token's place in the step.
        """
        if self._prompt_logprobs is None or result.prompt is None:
            return
        num_top = self._params.prompt_logprobs or 0
        end = min(item.start + item.num_tokens + 1, self._group.prompt_len)
        for position in range(item.start + 1, end):
            if self._prompt_logprobs[position] is not None:  # the prompt was computed again
                continue
            token = self._prompt.token_ids[position]
            self._prompt_logprobs[position] = token_logprobs(
                result.prompt, row + position - item.start - 1, token, num_top, self._word
            )

    def take_token(self, seq: Sequence, row: int, result: StepResult) -> str | None:
        """Takes the token just appended to `seq`; returns the stop string it completed, if any."""
        return self._sequence(seq).take_token(seq, row, result, self._word)

    def output(self, metrics: RequestMetrics, *, finished: bool) -> RequestOutput:
        """The request's state, or what is new in it. A returned output never changes later."""
        return RequestOutput(
            request_id=self._group.request_id,
            prompt=self._prompt.text,
            prompt_token_ids=self._prompt.token_ids,
            outputs=self._completions(self._chosen(finished=finished)),
            finished=finished,
            num_cached_tokens=self._group.num_cached_tokens or 0,
            metrics=metrics.copy(),
            prompt_logprobs=self._given_prompt_logprobs(),
        )

    def _chosen(self, *, finished: bool) -> list[Sequence]:
        """The first n sequences; at the end, the n most probable of `best_of`, best first."""
        seqs = self._group.seqs
        if finished and self._params.num_samples > self._params.n:
            seqs = sorted(seqs, key=self._rank)
        return seqs[: self._params.n]

    def _rank(self, seq: Sequence) -> tuple[bool, float]:
        """Sort key: the most probable first; a sequence without tokens, after an abort, last."""
        return not seq.output_len, -self._sequence(seq).cumulative_logprob

    def _completions(self, seqs: list[Sequence]) -> list[CompletionOutput]:
        """Omits an unfinished sequence without output: samples will fork from it."""
        return [
            self._completion(seq) for seq in seqs if seq.output_len or seq.finish_reason is not None
        ]

    def _completion(
        self, seq: Sequence, first_token: int = 0, first_char: int = 0
    ) -> CompletionOutput:
        """A sequence's output from this token and this character on."""
        results = self._sequence(seq)
        if not self.every_token:
            results.take_all(seq)
        logprobs = results.logprobs
        return CompletionOutput(
            index=seq.index,
            text=results.text(seq)[first_char:],
            token_ids=seq.token_ids[self._group.prompt_len + first_token :],
            cumulative_logprob=results.cumulative_logprob if self._params.needs_logprobs else None,
            logprobs=None if logprobs is None else logprobs[first_token:],
            finish_reason=seq.finish_reason,
            stop_reason=seq.stop_reason,
        )

    def _given_prompt_logprobs(self) -> PromptLogprobs | None:
        if self._prompt_logprobs is None or not self._params.flat_logprobs:
            return self._prompt_logprobs
        return FlatLogprobs.of(self._prompt_logprobs)

    def _sequence(self, seq: Sequence) -> SequenceResults:
        results = self._sequences.get(seq.index)
        if results is None:
            text = None
            if self._tokenizer is not None:
                text = SequenceText(self._tokenizer, self._prompt.token_ids, self._params)
            results = self._sequences[seq.index] = SequenceResults(self._params, text)
        return results

    def _word(self, token_id: int) -> str | None:
        if self._tokenizer is None:
            return None
        return self._tokenizer.decode([token_id], skip_special_tokens=False)


class CumulativeResults(FinalResults):
    """One output after each step, with everything so far (`RequestOutputKind.CUMULATIVE`)."""

    streams = True


class DeltaResults(FinalResults):
    """One output after each step, with what is new since the last one (`RequestOutputKind.DELTA`).

    The cumulative log-probability is the whole sequence's. Only the first output holds the prompt's
    log-probabilities.
    """

    streams = True

    def _completions(self, seqs: list[Sequence]) -> list[CompletionOutput]:
        return [self._delta(seq) for seq in seqs if self._has_news(seq)]

    def _has_news(self, seq: Sequence) -> bool:
        num_tokens, _, ended = self._sequence(seq).given
        return seq.output_len > num_tokens or (seq.finish_reason is not None and not ended)

    def _delta(self, seq: Sequence) -> CompletionOutput:
        num_tokens, num_chars, _ = self._sequence(seq).given
        delta = self._completion(seq, num_tokens, num_chars)
        num_tokens, num_chars = num_tokens + len(delta.token_ids), num_chars + len(delta.text)
        self._sequence(seq).given = num_tokens, num_chars, seq.finish_reason is not None
        return delta

    def _given_prompt_logprobs(self) -> PromptLogprobs | None:
        given = super()._given_prompt_logprobs()
        self._prompt_logprobs = None
        return given


class BeamResults(FinalResults):
    """One output with the beams, best first: their tokens are only known at the end."""

    counts_samples = False

    def _chosen(self, *, finished: bool) -> list[Sequence]:
        return self._group.seqs[: self._params.n]

    def _completion(
        self, seq: Sequence, first_token: int = 0, first_char: int = 0
    ) -> CompletionOutput:
        results = self._sequence(seq)
        results.cumulative_logprob = seq.cumulative_logprob
        results.logprobs = [
            {token: Logprob(logprob, rank, self._word(token))}
            for token, (logprob, rank) in zip(seq.output_token_ids, seq.token_logprobs, strict=True)
        ]
        return super()._completion(seq, first_token, first_char)


_KINDS = {
    RequestOutputKind.FINAL_ONLY: FinalResults,
    RequestOutputKind.CUMULATIVE: CumulativeResults,
    RequestOutputKind.DELTA: DeltaResults,
}


def results_for(
    prompt: Prompt, params: SamplingParams, group: SequenceGroup, tokenizer: Tokenizer | None
) -> FinalResults:
    """Makes the results of a generating request, of the kind that its parameters ask for."""
    kind = BeamResults if params.use_beam_search else _KINDS[params.output_kind]
    return kind(prompt, params, group, tokenizer)
