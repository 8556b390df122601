"""What clients of an engine are given, held to the oracle's chapters on parameters, text, outputs.

The oracle makes each request's tokens first, without stop strings, which change none of them. So
stop strings can be taken out of the text that is going to be generated.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reference.engine import ReferenceEngine
from reference.outputs import Request, Sample, end_of, outputs
from reference.parameters import parameters
from reference.sampling import log_softmax
from reference.sequence import SequenceGroup
from reference.text import decode
from reference.transformer import Transformer
from tests.support.beam_view import check_beams
from tests.support.compare_outputs import compare_one
from tests.support.engine_pair import TOLERANCE, naive_pass, same_or_rounding
from tests.support.engine_under_test import EngineUnderTest
from tests.support.engine_under_test import Request as EngineRequest
from tests.support.vocabularies import Words

STEP_LIMIT = 500
Cut = tuple[int, int, int]  # of the text of a sample: which one, from where, how many characters


@dataclass(frozen=True)
class Asked:
    """One request as a client words it.

    Attributes:
        given: Arguments of `SamplingParams`, but for `stop`.
        cuts: Its stop strings, as parts of what would be generated without them.
        stop: More stop strings.
        step: When it is added.
        abort_at: How many steps later it is aborted; None: it is not.
        in_outputs: Whether it is aborted while a step's outputs are looked at, or between steps.
    """

    prompt: list[int]
    given: dict[str, Any] = field(default_factory=dict)
    cuts: Sequence[Cut] = ()
    stop: Sequence[str] = ()
    step: int = 0
    abort_at: int | None = None
    in_outputs: bool = False


class Oracle:
    """What becomes of requests, by the position of each among those asked."""

    def __init__(self, reference: ReferenceEngine, model: Transformer, words: Words | None) -> None:
        self.reference = reference
        self.model = model
        self.vocabulary = None if words is None else words.oracle
        self.groups: dict[str, SequenceGroup] = {}
        self.requests: dict[str, Request] = {}
        self.live_beams: dict[str, dict[int, list[list[int]]]] = {}  # by their length

    def run(self, asked: Sequence[Asked]) -> list[list[str]]:
        """The stop strings of each."""
        for i, one in enumerate(asked):
            params: Any = parameters(**one.given)
            self.reference.add_request(str(i), one.prompt, params)
        groups = dict(self.reference.scheduler.groups)
        while self.reference.has_unfinished_requests():
            for name, group in groups.items():
                if group.beam_search:
                    self._note_beams(name, group)
            self.reference.step()
        self.groups = groups
        return [self._take(str(i), one) for i, one in enumerate(asked)]

    def _note_beams(self, request_id: str, group: SequenceGroup) -> None:
        """What an abort would give of a search now."""
        beams = [list(seq.output_token_ids) for seq in group.unfinished]
        if beams:
            self.live_beams.setdefault(request_id, {})[len(beams[0])] = beams

    def _take(self, request_id: str, asked: Asked) -> list[str]:
        """Notes what was served, and returns its stop strings. A search has no samples here."""
        samples, rows = [], list[np.ndarray]()
        group, params = self.groups[request_id], parameters(**asked.given)
        wanted = (params.logprobs, params.logprob_token_ids)
        for seq in () if group.beam_search else group.seqs:
            if params.ranked or any(one is not None for one in wanted):
                rows = logprobs_after_each(self.model, seq.token_ids)
            reason, ids = str(seq.finish_reason), seq.output_token_ids
            samples.append(Sample(ids, rows[seq.prompt_len - 1 : -1], reason, seq.stop_reason))
        stop = [*asked.stop, *self._cut(asked, samples)]
        params = parameters(**asked.given, stop=stop)
        if params.prompt_logprobs is not None:
            rows = logprobs_after_each(self.model, asked.prompt)
        self.requests[request_id] = Request(
            self.vocabulary, params, asked.prompt, samples, rows[: len(asked.prompt) - 1]
        )
        return stop

    def _cut(self, asked: Asked, samples: list[Sample]) -> Iterable[str]:
        for index, start, length in asked.cuts:
            assert self.vocabulary is not None
            ids = samples[index % len(samples)].token_ids
            skip = asked.given.get("skip_special_tokens", True)
            text = decode(self.vocabulary, ids, skip_special_tokens=skip, behind_prompt=True)
            if text:
                yield text[start % len(text) :][:length]


def logprobs_after_each(model: Transformer, token_ids: Sequence[int]) -> list[np.ndarray]:
    """Log-probabilities of what follows each token, from one pass without any history (I39)."""
    hidden = naive_pass(model, token_ids)
    return [log_softmax(row) for row in model.compute_logits(hidden)]


def serve(
    engine: EngineUnderTest, asked: Sequence[Asked], stops: Sequence[Sequence[str]]
) -> dict[str, list[Any]]:
    """All outputs of each request, in the order in which its client sees them."""
    seen: dict[str, list[Any]] = {str(i): [] for i in range(len(asked))}
    now = 0
    while now <= max(one.step for one in asked) or engine.is_busy():
        for i, (one, stop) in enumerate(zip(asked, stops, strict=True)):
            if one.step == now:
                engine.add(EngineRequest(str(i), one.prompt, one.given | {"stop": list(stop)}))
        given = engine.abort(_due(asked, now, in_outputs=False))
        ended: list[Any] = []  # come behind what the step had for the same request
        for output in engine.step():
            given.append(output)
            ended += engine.abort(_due(asked, now, in_outputs=True))
        for output in given + ended:
            seen[output.request_id].append(output)
        now += 1
        assert now < STEP_LIMIT, "I20: a request hangs"
    return seen


def hold(engine: EngineUnderTest, oracle: Oracle, asked: Sequence[Asked], seen: Counter) -> None:
    """The engine to the oracle.

    Args:
        seen: What has happened, so that a suite can say that it did.
    """
    given_out = serve(engine, asked, oracle.run(asked))
    if state := engine.debug_state():
        state.check_idle()
    for request_id, given in given_out.items():
        check = check_beams if oracle.groups[request_id].beam_search else check_outputs
        check(oracle, request_id, given, seen)


def _due(asked: Sequence[Asked], now: int, *, in_outputs: bool) -> list[str]:
    """The requests that are aborted now, or were before."""
    return [
        str(i)
        for i, one in enumerate(asked)
        if one.abort_at is not None
        and one.in_outputs is in_outputs
        and now >= one.step + one.abort_at
    ]


def check_outputs(oracle: Oracle, request_id: str, given: Sequence[Any], seen: Counter) -> None:
    """The outputs of one request are the oracle's: texts, tokens, reasons, log-probabilities.

    The ends of steps are read from the outputs; a sample may gain one token a step, no more.
    """
    request, group = oracle.requests[request_id], oracle.groups[request_id]
    delta = request.params.output_kind == "DELTA"
    steps: list[dict[int, int]] = []
    tokens: dict[int, list[int]] = {}
    for output in given:
        steps.append(dict(steps[-1]) if delta and steps else {})
        for one in output.outputs:
            before = tokens.get(one.index, [])
            tokens[one.index] = (before if delta else []) + one.token_ids
            steps[-1][one.index] = len(tokens[one.index])
            hidden = request.params.ranked and not before  # not among the first n
            if request.params.output_kind != "FINAL_ONLY" and not hidden:
                assert len(tokens[one.index]) <= len(before) + 1, "a step was not given out"
    for index, ids in tokens.items():
        if ids != request.samples[index].token_ids[: len(ids)]:
            same_or_rounding(oracle.model, group, index, ids)
            seen["rounding decided"] += 1
            return
    _compare(request, given, steps, seen)


def _compare(
    request: Request, given: Sequence[Any], steps: list[dict[int, int]], seen: Counter
) -> None:
    indices = range(len(request.samples))
    ends = {index: end_of(request, index)[0] for index in indices}
    aborted = any(one.finish_reason == "abort" for one in given[-1].outputs)
    last = steps[-1]
    if not aborted:
        if not request.params.ranked:
            assert last == ends, "each sample comes to its end"
        steps[-1] = ends
    elif 0 in last.values() and not request.params.ranked:
        waiting = [index for index, count in last.items() if count == 0]
        assert waiting == [min(set(indices) - {i for i, count in last.items() if count})]
    assert [one.finished for one in given] == [False] * (len(given) - 1) + [True]
    expected = outputs(request, steps, aborted=aborted)
    if request.params.ranked and _may_be_tie(request, steps[-1]):
        return
    before: Counter[int] = Counter()
    for mine, theirs in zip(given, expected, strict=True):
        compare_one(request, mine, theirs, before)
        if request.params.output_kind == "DELTA":
            before.update({one.index: len(one.token_ids) for one in mine.outputs})
    _note(request, given, aborted, seen)


def _may_be_tie(request: Request, counts: dict[int, int]) -> bool:
    """Whether rounding may decide which of the samples is better."""
    sums = []
    for index, count in counts.items():
        sample = request.samples[index]
        each = zip(sample.token_ids[:count], sample.logprobs[:count], strict=True)
        sums.append(sum(row[token] for token, row in each))
    return len(sums) > 1 and min(np.diff(sorted(sums))) < 10 * TOLERANCE


def _note(request: Request, given: Sequence[Any], aborted: bool, seen: Counter) -> None:
    """What happened, so that a suite can say that it did."""
    happened = {f"output_kind {request.params.output_kind}"}
    for one in given[-1].outputs:
        if isinstance(one.stop_reason, str):
            happened.add("stop string")
            happened.add("stop string included" * request.params.include_stop_str_in_output)
            happened.add("stop string behind min_tokens" * (request.params.min_tokens > 0))
        happened.add("a token ended it" * (one.finish_reason == "stop"))
    happened.add("aborted" * aborted)
    happened.add("ranked" * request.params.ranked)
    happened.add("logprobs" * (request.params.logprobs is not None))
    seen.update(happened - {""})
