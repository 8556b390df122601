"""What a client is given: outputs as a function of tokens, parameters and the ends of steps.

The scheduler and the sampler have made tokens; they do not know what the tokens say. Here is the
rest of a request's life. Given what each sample would be without stop strings, and how many tokens
each of them had after each step, the rules are:

1. A sample ends where its tokens end it, or earlier with the token that completes a stop string
   (chapter `text`); a stop string counts before any other reason. A token that ends an output is
   one of its tokens, and no part of its text unless `include_stop_str_in_output`.
2. While a sample goes on, its text is what may be shown of it. At its end, an abort too, what was
   held back is given out.
3. `CUMULATIVE` gives after each step all there is so far, `DELTA` what is new, `FINAL_ONLY` one
   output at the end. Samples that have not begun are left out. What is new of a sample is its
   tokens, the text that follows what was given, the log-probabilities of these tokens; the sum of
   the log-probabilities is always that of the whole output. A sample with nothing new is left out.
4. The n samples are in the order of their numbers. Where more are drawn than returned (`best_of`),
   the last output has the n of the largest sums, largest first; before, nobody knows which. One
   without a token, after an abort, is behind all others.
5. Log-probabilities are those of the raw logits: of the token itself first, then of the `logprobs`
   most probable ones (-1: all), or of `logprob_token_ids`. A token's rank is 1 more than the number
   of tokens that are more probable. Those of a prompt have no entry for its first token. `DELTA`
   gives them once, in the first output.
6. A beam search gives one output (its kind is `FINAL_ONLY`): the n best hypotheses in the order of
   their scores, which are its samples here; if it was aborted, the live beams as they were, best
   first. Log-probabilities are always given, of the token itself alone, and they are those that the
   search went by: of the logits that all of a request's edits have changed.

Two tokens, "a" and "b", of which "b" is twice as probable, always; "ba" stops:

>>> words = Vocabulary([b"a", b"b"])
>>> row = np.log([1 / 3, 2 / 3])
>>> request = Request(words, parameters(stop="ba", output_kind="DELTA", logprobs=0), [1],
...                   [Sample([1, 1, 0, 0], [row] * 4, "length")])
>>> for output in outputs(request, [{0: 1}, {0: 2}, {0: 3}]):
...     [one] = output.outputs
...     print(repr(one.text), one.token_ids, round(one.cumulative_logprob, 2), one.stop_reason)
'' [1] -0.41 None
'b' [1] -0.81 None
'' [0] -1.91 ba
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reference.parameters import Parameters, parameters  # noqa: F401 (the example above)
from reference.text import Stop, Vocabulary, certain, decode, find_stop, shown

StopReason = int | str | None


@dataclass(frozen=True)
class Sample:
    """One of a request's sequences, as it would be without stop strings.

    `logprobs` has for each token the log-probabilities of all V tokens that might have stood there.
    """

    token_ids: Sequence[int]
    logprobs: Sequence[np.ndarray]
    finish_reason: str
    stop_reason: StopReason = None


@dataclass(frozen=True)
class Request:
    """What a request asked for, and what became of it. `vocabulary` is None without a tokenizer.

    `prompt_logprobs` has V log-probabilities for each token of the prompt but the first.
    """

    vocabulary: Vocabulary | None
    params: Parameters
    prompt_token_ids: Sequence[int]
    samples: Sequence[Sample]
    prompt_logprobs: Sequence[np.ndarray] = ()


@dataclass(frozen=True)
class Logprob:
    logprob: float
    rank: int
    decoded_token: str | None


@dataclass(frozen=True)
class Completion:
    """One sample as a client sees it."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str | None
    stop_reason: StopReason


@dataclass(frozen=True)
class Output:
    """A request as a client sees it."""

    outputs: list[Completion]
    finished: bool
    prompt_logprobs: list[dict[int, Logprob] | None] | None


def outputs(
    request: Request, steps: Sequence[Mapping[int, int]], *, aborted: bool = False
) -> list[Output]:
    """Rule 3: all outputs of a request.

    A step is the number of tokens by sample, of those that there are, after it. With the last one
    the request is over: all samples have ended, or it was aborted then.
    """
    given: list[Output] = []
    before: Mapping[int, int] = {}
    kind = request.params.output_kind
    for number, counts in enumerate(steps, 1):
        over = number == len(steps)
        output = _cumulative(request, counts, over=over, aborted=over and aborted)
        if kind == "DELTA":
            output = _delta(request, output, before, first=number == 1)
        if over or kind != "FINAL_ONLY":
            given.append(output)
        before = counts
    return given


def end_of(request: Request, index: int) -> tuple[int, str, StopReason]:
    """Rule 1: how many tokens a sample has, and why no more."""
    sample = request.samples[index]
    stop = _stop_in(request, index, len(sample.token_ids))
    if stop is None:
        return len(sample.token_ids), sample.finish_reason, sample.stop_reason
    return stop.num_tokens, "stop", stop.string


def text_of(request: Request, index: int, num_tokens: int, *, over: bool) -> str:
    """Rule 2: the text of a sample with its first so many tokens."""
    params, vocabulary = request.params, request.vocabulary
    if vocabulary is None or not params.detokenize:
        return ""
    stop = _stop_in(request, index, num_tokens, over=over)
    text = _texts(request, vocabulary, index, num_tokens, over=over)[-1]
    if stop is not None:
        end = stop.start + len(stop.string) * params.include_stop_str_in_output
        return text[:end]
    return text if over else shown(text, params.stop)


def completion(
    request: Request, index: int, num_tokens: int, *, aborted: bool = False
) -> Completion:
    """A sample with its first so many tokens; aborted there, unless it has ended by itself."""
    last, reason, stop_reason = end_of(request, index)
    over = num_tokens == last
    sample, params = request.samples[index], request.params
    token_ids, rows = list(sample.token_ids[:num_tokens]), sample.logprobs[:num_tokens]
    asked = params.logprobs is not None or params.logprob_token_ids is not None
    wanted = asked or params.use_beam_search
    each = zip(token_ids, rows, strict=True)
    return Completion(
        index=index,
        text=text_of(request, index, num_tokens, over=over or aborted),
        token_ids=token_ids,
        cumulative_logprob=_total(request, index, num_tokens) if wanted or params.ranked else None,
        logprobs=[_entry(request, token, row) for token, row in each] if wanted else None,
        finish_reason=reason if over else "abort" if aborted else None,
        stop_reason=stop_reason if over else None,
    )


def prompt_logprobs(request: Request) -> list[dict[int, Logprob] | None] | None:
    """Rule 5, of the prompt."""
    wanted = request.params.prompt_logprobs
    if wanted is None:
        return None
    each = zip(request.prompt_token_ids[1:], request.prompt_logprobs, strict=True)
    return [None, *(_most_probable(request, token, row, wanted) for token, row in each)]


def _cumulative(
    request: Request, counts: Mapping[int, int], *, over: bool, aborted: bool
) -> Output:
    """Rule 4: all there is of a request."""
    indices = sorted(counts)
    if request.params.ranked and over:
        indices.sort(key=lambda index: (not counts[index], -_total(request, index, counts[index])))
    completions = [
        completion(request, index, counts[index], aborted=aborted)
        for index in indices[: request.params.n]
    ]
    return Output(completions, over, prompt_logprobs(request))


def _delta(request: Request, now: Output, before: Mapping[int, int], *, first: bool) -> Output:
    """What is new of `now`."""
    new = []
    for one in now.outputs:
        start = before.get(one.index, 0)
        told = one.finish_reason is None or start == end_of(request, one.index)[0]
        if start == len(one.token_ids) and told:
            continue
        text = text_of(request, one.index, start, over=False)
        part = None if one.logprobs is None else one.logprobs[start:]
        new.append(
            replace(one, text=one.text[len(text) :], token_ids=one.token_ids[start:], logprobs=part)
        )
    return Output(new, now.finished, now.prompt_logprobs if first else None)


def _texts(
    request: Request, vocabulary: Vocabulary, index: int, num_tokens: int, *, over: bool
) -> list[str]:
    """What is certain after each of the first so many tokens; rule 1 says which of them count."""
    sample, params = request.samples[index], request.params
    token_ids = sample.token_ids[:num_tokens]
    ended_by_token = sample.finish_reason == "stop" and num_tokens == len(sample.token_ids)
    if ended_by_token and not params.include_stop_str_in_output:
        token_ids = token_ids[:-1]
    skip = params.skip_special_tokens
    return certain(vocabulary, token_ids, skip_special_tokens=skip, behind_prompt=True, over=over)


def _stop_in(request: Request, index: int, num_tokens: int, *, over: bool = False) -> Stop | None:
    """The stop string in the text of these tokens.

    What was held back as the beginning of a character may complete one where the tokens end.
    """
    params, vocabulary = request.params, request.vocabulary
    if vocabulary is None or not params.stop:
        return None
    texts = _texts(request, vocabulary, index, num_tokens, over=False)
    stop = find_stop(texts, params.stop, params.min_tokens)
    if stop is None and (over or num_tokens == len(request.samples[index].token_ids)):
        texts = _texts(request, vocabulary, index, num_tokens, over=True)
        stop = find_stop(texts, params.stop, params.min_tokens)
        stop = None if stop is None else replace(stop, num_tokens=num_tokens)
    return stop


def _total(request: Request, index: int, num_tokens: int) -> float:
    sample = request.samples[index]
    each = zip(sample.token_ids[:num_tokens], sample.logprobs, strict=False)
    return float(sum(row[token] for token, row in each))


def _entry(request: Request, token_id: int, row: np.ndarray) -> dict[int, Logprob]:
    """Rule 5, of one token of an output."""
    chosen = request.params.logprob_token_ids
    if chosen is None:
        return _most_probable(request, token_id, row, request.params.logprobs or 0)
    return {one: _logprob(request, one, row) for one in (token_id, *chosen)}


def _most_probable(
    request: Request, token_id: int, row: np.ndarray, count: int
) -> dict[int, Logprob]:
    """The token itself, then the `count` most probable ones, of equal ones the first; -1: all."""
    best = np.argsort(-row, kind="stable")[: None if count == -1 else count]
    return {int(one): _logprob(request, int(one), row) for one in (token_id, *best)}


def _logprob(request: Request, token_id: int, row: np.ndarray) -> Logprob:
    word = None
    if request.vocabulary is not None and request.params.detokenize:
        word = decode(request.vocabulary, [token_id], skip_special_tokens=False)
    return Logprob(float(row[token_id]), 1 + int((row > row[token_id]).sum()), word)
