"""Crowds of requests, served together and one by one; and all that each of them got.

A crowd is drawn by NumPy from one number, since Hypothesis would take longer over 256 requests than
the engine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jax_engine import LLMEngine, RequestOutput, StructuredOutputsParams
from jax_engine.tokenization.tokenizer import Tokenizer
from tests.support.builders import MAX_SEQS, Pool, build_one, letters, parts_for
from tests.support.engine_under_test import EngineUnderTest, Limits, Request
from tests.support.in_process import InProcess
from tests.support.tiny_llama import EOS

FIRST, END = 3, 31  # the tokens of prompts: every vocabulary has them, and none ends an output
LONGEST_OUTPUT = 14
# Tokens and log-probabilities of each sample, and the prompt's log-probabilities.
type Said = tuple[list[tuple[Any, ...]], Any]


@dataclass(frozen=True)
class Guest:
    """A request of a crowd, and the step before which its client leaves, if it does."""

    request: Request
    leaves: int | None = None


def crowd(seed: int, size: int, longest: int) -> list[Guest]:
    """A number of requests with prompts of up to `longest` tokens, which share beginnings."""
    rng = np.random.default_rng([seed, size, longest])
    stem = rng.integers(FIRST, END, longest)
    return [_guest(rng, str(i), stem) for i in range(size)]


def _guest(rng: np.random.Generator, name: str, stem: np.ndarray) -> Guest:
    own = rng.integers(FIRST, END, len(stem))
    length = rng.integers(1, len(stem) + 1)
    prompt = np.where(np.arange(length) < rng.integers(0, length + 1), stem[:length], own[:length])
    step = int(rng.choice([0, 0, 0, 1, 2, 5, 9]))
    request = Request(
        name,
        prompt.tolist(),
        _params(rng, int(name)),
        step=step,
        arrival_time=float(step),
        priority=int(rng.integers(0, 2)),
        limits=_limits(rng),
    )
    leaves = step + int(rng.integers(0, 12)) if rng.random() < 0.1 else None
    # What a search has when it is aborted need not be the beginning of what it ends with.
    return Guest(request, None if request.given["use_beam_search"] else leaves)


def _params(rng: np.random.Generator, seed: int) -> dict[str, Any]:
    sampled = bool(rng.random() < 0.6)
    beams = not sampled and rng.random() < 0.1
    return {
        "temperature": float(rng.choice([0.7, 1.3])) if sampled else 0.0,
        "n": int(rng.choice([1, 1, 1, 2, 3])) if sampled else 1 + beams,
        "use_beam_search": beams,
        "top_k": int(rng.choice([0, 0, 5])) if sampled else 0,
        "top_p": float(rng.choice([1.0, 1.0, 0.9])) if sampled else 1.0,
        "max_tokens": int(rng.choice([1, 2, 5, 9, LONGEST_OUTPUT])),
        "ignore_eos": bool(rng.random() < 0.7),
        "logprobs": None if beams else 2,
        "seed": seed,
    }


def _limits(rng: np.random.Generator) -> Limits | None:
    """A grammar of letters, now and then."""
    if rng.random() < 0.85:
        return None
    return Limits(structured_outputs=StructuredOutputsParams(regex="[a-d]{2,5}(e|fg)"))


def compare(
    pool: Pool, guests: Sequence[Guest], **how: Any
) -> tuple[dict[str, RequestOutput], LLMEngine]:
    """Serves a crowd together, then each of it alone: who was served, and the engine.

    Left out are refused requests; and the one exception, those that may have found in the cache
    what another request generated.

    Args:
        how: Settings of the engine that serves them together.

    Raises:
        AssertionError: Somebody got something else alone.
    """
    engine = build_one(pool, tokenizer=_letters(pool), **how)
    requests = [one.request for one in guests]
    leaves = {one.request.request_id: one.leaves for one in guests if one.leaves is not None}
    together = serve(InProcess(engine), requests, leaves)
    if any_found_generated(together, requests):
        together = {name: one for name, one in together.items() if not one.num_cached_tokens}
    roomy = replace(pool, block_size=16, num_blocks=2 + pool.max_len // 4, max_seqs=MAX_SEQS)
    alone = serve_one_by_one(roomy, [one for one in requests if one.request_id in together])
    for name, output in together.items():
        assert same_as_far(output, alone[name]), name
    return together, engine


def serve_one_by_one(pool: Pool, requests: Sequence[Request]) -> dict[str, RequestOutput]:
    """The same of an engine that has one request at a time, and computes its prompt at once."""
    whole = {"scheduling": "unified", "max_num_batched_tokens": pool.max_len}
    alone = build_one(
        pool, num_cpu_blocks=0, prefix_caching=False, tokenizer=_letters(pool), **whole
    )
    engine = InProcess(alone)
    outputs: dict[str, RequestOutput] = {}
    for request in requests:
        outputs |= serve(engine, [request])
    return outputs


def _letters(pool: Pool) -> Tokenizer:
    return letters(parts_for(pool).model_config.vocab_size, EOS)


def serve(
    engine: EngineUnderTest, requests: Sequence[Request], leaves: dict[str, int] | None = None
) -> dict[str, RequestOutput]:
    """The last output of each request that is not refused, by its id.

    Args:
        leaves: Before which step a request is aborted.
    """
    outputs: dict[str, RequestOutput] = {}
    waiting, now, leaving = list(requests), 0, dict(leaves or {})
    engine.clock = lambda: float(now)
    while waiting or engine.is_busy():
        for request in [one for one in waiting if one.step <= now]:
            waiting.remove(request)
            try:
                engine.add(request)
            except ValueError:
                continue
        gone = [name for name, step in leaving.items() if step <= now]
        for name in gone:
            del leaving[name]
        given = [*engine.abort(gone), *engine.step()]
        outputs |= {one.request_id: one for one in given if one.finished}
        now += 1
    return outputs


def found_generated(
    name: str, together: Mapping[str, RequestOutput], requests: Sequence[Request]
) -> bool:
    """Whether the cache may have held, of a request's prompt, tokens that another one generated.

    Whose prompt is the beginning of what was found, and whose first token follows there, has the
    next token's keys and values from a decode. Of a beam search, and of the best of several
    samples, each token is taken for generated: those that were dropped are in no output.
    """
    prompt, found = list(together[name].prompt_token_ids), together[name].num_cached_tokens or 0
    for other in requests:
        end = len(other.prompt)
        if other.request_id == name or end >= found or prompt[:end] != list(other.prompt):
            continue
        output = together.get(other.request_id)
        samples = [] if output is None else [list(one.token_ids[:1]) for one in output.outputs]
        unseen = other.given["use_beam_search"] or other.given.get("best_of")
        if unseen or [prompt[end]] in samples:
            return True
    return False


def any_found_generated(together: Mapping[str, RequestOutput], requests: Sequence[Request]) -> bool:
    """Whether somebody may have; who finds somebody else's keys after that has them as well."""
    return any(found_generated(name, together, requests) for name in together)


def said(output: RequestOutput) -> Said:
    """All that a request gets, with all digits."""
    samples = [
        (one.index, one.token_ids, one.finish_reason, one.cumulative_logprob, words(one.logprobs))
        for one in output.outputs
    ]
    return samples, words(output.prompt_logprobs)


def same_as_far(given: RequestOutput, whole: RequestOutput) -> bool:
    """Whether all samples got the same; of a request that was aborted, as far as they came."""
    if not any(one.finish_reason == "abort" for one in given.outputs):
        return said(given) == said(whole)
    samples = {one.index: one for one in whole.outputs}
    return all(
        one.token_ids == samples[one.index].token_ids[: len(one.token_ids)]
        and words(one.logprobs) == _first(words(samples[one.index].logprobs), len(one.token_ids))
        for one in given.outputs
    )


def _first(logprobs: Any, count: int) -> Any:
    return None if logprobs is None else logprobs[:count]


def words(logprobs: Any) -> Any:
    """Log-probabilities as plain numbers: the order of equal ones does not count."""
    if logprobs is None:
        return None
    return [
        None if one is None else sorted((token, (p.logprob, p.rank)) for token, p in one.items())
        for one in logprobs
    ]
