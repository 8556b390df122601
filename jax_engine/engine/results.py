"""What the steps give a generating request, until it is handed over as `EngineCoreOutput`.

The sampler's arrays become the log-probabilities that the request asked for, or the candidates of
its beams. Only for a request with stop strings is text made here (`assembler.SequenceText`). Else
whoever reads makes it of the tokens. Beam search in the engine is here as a whole: the check of a
request, the candidates of a step, and the output of `LLM.beam_search`.

Pooling requests have results of another kind (`pooling.PooledResults`).
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from jax_engine.core.beam_search import num_candidates
from jax_engine.core.scheduler_output import ScheduledSequence
from jax_engine.core.sequence import Candidate, Sequence
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.engine.assembler import SequenceText
from jax_engine.engine.engine_core_output import (
    Drafts,
    EngineCoreOutput,
    LogprobLists,
    SequenceOutput,
    Times,
)
from jax_engine.engine.requests.prompts import Prompt
from jax_engine.errors import RequestTooLargeError
from jax_engine.outputs import BeamSearchOutput, BeamSearchSequence, RequestMetrics, RequestOutput
from jax_engine.sampling_params import MAX_CANDIDATES, RequestOutputKind, SamplingParams
from jax_engine.step import SampleLogprobs, StepResult
from jax_engine.tokenization.tokenizer import Tokenizer


def add_sampled(
    lists: LogprobLists,
    logprobs: SampleLogprobs,
    logits: np.ndarray | None,
    row: int,
    token: int,
    params: SamplingParams,
) -> None:
    """Appends a sampled token first, then the others that its request asked for.

    Args:
        logits: The raw ones, [R, V], of a step with a request that needs whole rows.
    """
    if not params.needs_logits:
        add_rows(lists, logprobs, slice(row, row + 1), [token], params.logprobs or 0)
        return
    assert logits is not None
    others = params.logprob_token_ids
    if others is None:
        assert params.logprobs is not None
        others = most_probable(logits[row], params.logprobs)
    ids = [one for one in dict.fromkeys(others) if one != token]
    values, ranks = _of_tokens(logits[row], ids)
    chosen, rank = float(logprobs.logprobs[row]), int(logprobs.ranks[row])
    lists.add([token, *ids], [chosen, *values], [rank, *ranks])


def add_rows(
    lists: LogprobLists, logprobs: SampleLogprobs, rows: slice, token_ids: list[int], num_top: int
) -> None:
    """Appends each row's token first, then the `num_top` most probable ones; -1: all there are."""
    end = None if num_top == -1 else num_top
    for token, chosen, rank, tops, values in zip(
        token_ids,
        logprobs.logprobs[rows].tolist(),
        logprobs.ranks[rows].tolist(),
        logprobs.top_token_ids[rows, :end].tolist(),
        logprobs.top_logprobs[rows, :end].tolist(),
        strict=True,
    ):
        ranks = list(range(1, len(tops) + 1))
        if token in tops:
            at = tops.index(token)
            del tops[at], values[at], ranks[at]
        lists.add([token, *tops], [chosen, *values], [rank, *ranks])


def most_probable(logits: np.ndarray, count: int) -> list[int]:
    """The tokens of the largest logits [V], best first and of equal ones the first; -1: all."""
    order: list[int] = np.argsort(-logits, kind="stable")[: None if count == -1 else count].tolist()
    return order


def _of_tokens(logits: np.ndarray, tokens: list[int]) -> tuple[list[float], list[int]]:
    """Log-probabilities and ranks of these tokens, given the logits [V]."""
    largest = logits.max()
    normaliser = largest + np.log(np.exp((logits - largest).astype(np.float64)).sum())
    values = logits[tokens] - normaliser
    # As many tokens are more probable as there are larger logits
    ranks = 1 + len(logits) - np.searchsorted(np.sort(logits), logits[tokens], side="right")
    return values.tolist(), ranks.tolist()


def check_beams(params: SamplingParams, eos_token_ids: Collection[int], vocab_size: int) -> None:
    """Checks that the sampler returns enough candidates for a request's beams.

    Raises:
        RequestTooLargeError: A step needs more candidates than the sampler returns.
    """
    if not params.use_beam_search:
        return
    need = num_candidates(params, eos_token_ids)
    if min(need, vocab_size) > MAX_CANDIDATES:
        raise RequestTooLargeError(
            f"use_beam_search with {params.num_samples} beams (best_of, n or beam_width) and these "
            f"end-of-sequence and stop tokens looks at {need} candidates a step, the sampler gives "
            f"{MAX_CANDIDATES}: lower the width, or give fewer stop_token_ids"
        )


def candidates_of(
    sampled: list[tuple[ScheduledSequence, int]], logprobs: SampleLogprobs
) -> dict[int, list[Candidate]]:
    """The candidates of each beam of a step: its most probable allowed tokens, best first.

    Args:
        sampled: Sequences that got tokens, each with the row of its first token.
    """
    found = {}
    for item, row in sampled:
        beam = item.group.beam
        if beam is not None:
            tokens = logprobs.top_token_ids[row, : beam.num_candidates].tolist()
            values = logprobs.top_logprobs[row, : beam.num_candidates].tolist()
            pairs = zip(tokens, values, strict=True)
            # A forbidden token has log-probability -inf
            found[item.seq.seq_id] = [pair for pair in pairs if pair[1] > -np.inf]
    return found


def beam_search_output(output: RequestOutput, tokenizer: Tokenizer | None) -> BeamSearchOutput:
    """Converts the output of a finished beam-search request to that of `LLM.beam_search`."""
    sequences = []
    for one in output.outputs:
        tokens = output.prompt_token_ids + one.token_ids
        sequences.append(
            BeamSearchSequence(
                tokens=tokens,
                logprobs=one.logprobs,
                cum_logprob=one.cumulative_logprob or 0.0,
                text=None if tokenizer is None else tokenizer.decode(tokens),
                finish_reason=one.finish_reason,
                stop_reason=one.stop_reason,
            )
        )
    return BeamSearchOutput(sequences)


@dataclass(slots=True)
class _Sample:
    """What one sequence has that was not handed over yet, and how much was.

    Attributes:
        maker: Makes its text; None if whoever reads does, or nobody.
        text, logprobs: What is new.
        num_given, end_given: How many of its tokens were handed over, and whether its end was.
    """

    maker: SequenceText | None
    logprobs: LogprobLists | None
    text: str = ""
    cumulative_logprob: float = 0.0
    num_given: int = 0
    end_given: bool = False


class Results:
    """The results of a generating request.

    Text is made here only if the request has stop strings, which decide when it ends.

    Attributes:
        streams: Whether there is output after each step that drew tokens for the request; else only
            at the end.
        every_token: Whether each token must be processed when it is sampled (stop strings,
            log-probabilities).
        counts_samples: Whether each token that is sampled is one of its output; not in a beam
            search, whose tokens are known at the end.
    """

    def __init__(
        self,
        prompt: Prompt,
        params: SamplingParams,
        group: SequenceGroup,
        tokenizer: Tokenizer | None,
    ) -> None:
        self.counts_samples = not params.use_beam_search
        self.streams = (
            self.counts_samples and params.output_kind is not RequestOutputKind.FINAL_ONLY
        )
        self.every_token = self.counts_samples and (params.needs_logprobs or bool(params.stop))
        self._prompt = prompt
        self._params = params
        self._group = group
        self._tokenizer = tokenizer if params.stop else None
        self._gives_logprobs = params.logprobs is not None or params.logprob_token_ids is not None
        self._samples: dict[int, _Sample] = {}
        self._prompt_logprobs: LogprobLists | None = None
        if params.prompt_logprobs is not None:
            self._prompt_logprobs = LogprobLists([0])  # nothing is before the first token
        self._is_begun = False

    @property
    def num_generated(self) -> int:
        """Output tokens of all sequences."""
        return sum(seq.output_len for seq in self._group.seqs)

    def take_prompt(
        self, item: ScheduledSequence, index: int, row: int, result: StepResult
    ) -> None:
        """Takes a chunk's prompt log-probabilities; keeps those it has if it is computed again.

        Args:
            index: The sequence's place in the step.
            row: Its first token's place in the step.
        """
        lists = self._prompt_logprobs
        if lists is None or result.prompt is None:
            return
        first, end = (
            len(lists.counts),
            min(item.start + item.num_tokens + 1, self._group.prompt_len),
        )
        if first < end:
            before = row - item.start - 1  # the row of position p is that of the token before it
            rows, tokens = slice(before + first, before + end), self._prompt.token_ids[first:end]
            add_rows(lists, result.prompt, rows, tokens, self._params.prompt_logprobs or 0)

    def take_token(self, seq: Sequence, row: int, result: StepResult) -> str | None:
        """Takes the token just appended to `seq`; returns the stop string it completed, if any.

        Args:
            row: The token's row among those that the step drew.
        """
        sample, params, token = self._sample(seq), self._params, seq.token_ids[-1]
        if params.needs_logprobs:
            assert result.logprobs is not None
            sample.cumulative_logprob += float(result.logprobs.logprobs[row])
            if sample.logprobs is not None:
                logits = result.logits
                add_sampled(sample.logprobs, result.logprobs, logits, row, token, params)
        if sample.maker is None:
            return None
        sample.text += sample.maker.take([token], seq.finish_reason, seq.stop_reason)
        return sample.maker.stopped_by

    def core_output(self, metrics: RequestMetrics, *, finished: bool) -> EngineCoreOutput:
        """What is new since the last call."""
        seqs, given = self._group.seqs, self._prompt_logprobs
        if finished and self._params.num_samples > self._params.n and self.counts_samples:
            seqs = sorted(seqs, key=self._rank)
        all_of, shown = finished and self._params.is_ranked, seqs[: self._params.n]
        outputs = [self._sequence_output(seq) for seq in shown if all_of or self._has_output(seq)]
        times: Times | None = None
        if finished or not self._is_begun:
            times = (
                metrics.first_token_time,
                metrics.finished_time,
                metrics.queued_time,
                metrics.scheduled_time,
                metrics.last_token_time,
            )
        if given is not None:
            given.counts += [0] * (self._group.prompt_len - len(given.counts))  # not reached
        self._is_begun, self._prompt_logprobs = True, None
        cached = self._group.num_cached_tokens or 0
        drafts = self._drafts(metrics, shown) if finished else (0, 0, 0, 0)
        name = self._group.request_id
        return EngineCoreOutput(name, outputs, finished, cached, times, given, drafts)

    def _drafts(self, metrics: RequestMetrics, seqs: list[Sequence]) -> Drafts:
        prediction, predicted = self._group.prediction, (0, 0)
        if prediction is not None:
            predicted = prediction.counts(seqs)
        return metrics.num_draft_tokens, metrics.num_accepted_tokens, *predicted

    def _rank(self, seq: Sequence) -> tuple[bool, float]:
        """Sort key: the most probable first; a sequence without tokens, after an abort, last."""
        return not seq.output_len, -self._sample(seq).cumulative_logprob

    def _has_output(self, seq: Sequence) -> bool:
        """Not an unfinished sequence without output: samples will fork from it."""
        sample = self._sample(seq)
        ended = seq.finish_reason is not None and not sample.end_given
        return seq.output_len > sample.num_given or ended

    def _sequence_output(self, seq: Sequence) -> SequenceOutput:
        sample = self._sample(seq)
        tokens = seq.token_ids[self._group.prompt_len + sample.num_given :]
        if sample.maker is not None and seq.finish_reason == "abort" and not sample.end_given:
            sample.text += sample.maker.take([], "abort")  # held back for tokens that will not come
        cumulative, logprobs = sample.cumulative_logprob, sample.logprobs
        if not self.counts_samples:
            cumulative, logprobs = seq.cumulative_logprob, _of_beam(seq)
        output = SequenceOutput(
            seq.index,
            tokens,
            None if sample.maker is None else sample.text,
            cumulative if self._params.needs_logprobs else None,
            logprobs,
            seq.finish_reason,
            seq.stop_reason,
        )
        sample.text, sample.end_given = "", seq.finish_reason is not None
        sample.num_given += len(tokens)
        if sample.logprobs is not None:
            sample.logprobs = LogprobLists()
        return output

    def _sample(self, seq: Sequence) -> _Sample:
        sample = self._samples.get(seq.index)
        if sample is None:
            maker = None
            if self._tokenizer is not None:
                maker = SequenceText(self._tokenizer, self._prompt.known_ids, self._params)
            logprobs = LogprobLists() if self._gives_logprobs else None
            sample = self._samples[seq.index] = _Sample(maker, logprobs)
        return sample


def _of_beam(seq: Sequence) -> LogprobLists:
    """Log-probability and rank of each token of a beam, and of no others."""
    tokens, pairs = seq.output_token_ids, seq.token_logprobs
    logprobs, ranks = [one for one, _ in pairs], [rank for _, rank in pairs]
    return LogprobLists([1] * len(tokens), tokens, logprobs, ranks)
