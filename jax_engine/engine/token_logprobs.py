"""Converts the sampler's arrays to the log-probabilities that a request asked for."""

from collections.abc import Callable

import numpy as np

from jax_engine.logprobs import Logprob
from jax_engine.sampling_params import SamplingParams
from jax_engine.step import SampleLogprobs

type Words = Callable[[int], str | None]


def sampled_logprobs(
    logprobs: SampleLogprobs,
    logits: np.ndarray | None,
    row: int,
    token: int,
    params: SamplingParams,
    word: Words,
) -> dict[int, Logprob]:
    """Of a sampled token first, then of the others that its request asked for.

    Args:
        logits: The raw ones, [R, V], of a step with a request that needs whole rows.
    """
    if not params.needs_logits:
        return token_logprobs(logprobs, row, token, params.logprobs or 0, word)
    assert logits is not None
    entry = token_logprobs(logprobs, row, token, 0, word)
    others = params.logprob_token_ids
    if others is None:
        assert params.logprobs is not None
        others = most_probable(logits[row], params.logprobs)
    return entry | _of_tokens(logits[row], [one for one in others if one not in entry], word)


def token_logprobs(
    logprobs: SampleLogprobs, row: int, token: int, num_top: int, word: Words
) -> dict[int, Logprob]:
    """The sampled token first, then the `num_top` most probable ones; -1: all there are."""
    chosen, rank = float(logprobs.logprobs[row]), int(logprobs.ranks[row])
    entry = {token: Logprob(chosen, rank, word(token))}
    end = None if num_top == -1 else num_top
    tops: list[int] = np.asarray(logprobs.top_token_ids[row, :end]).tolist()
    for i, top in enumerate(tops):
        if top not in entry:
            entry[top] = Logprob(float(logprobs.top_logprobs[row, i]), i + 1, word(top))
    return entry


def most_probable(logits: np.ndarray, count: int) -> list[int]:
    """The tokens of the largest logits [V], best first and of equal ones the first; -1: all."""
    order: list[int] = np.argsort(-logits, kind="stable")[: None if count == -1 else count].tolist()
    return order


def _of_tokens(logits: np.ndarray, tokens: list[int], word: Words) -> dict[int, Logprob]:
    """Log-probabilities of these tokens, given the logits [V]."""
    largest = logits.max()
    normaliser = largest + np.log(np.exp((logits - largest).astype(np.float64)).sum())
    values = (logits[tokens] - normaliser).tolist()
    # As many tokens are more probable as there are larger logits
    ranks = 1 + len(logits) - np.searchsorted(np.sort(logits), logits[tokens], side="right")
    return {
        token: Logprob(value, rank, word(token))
        for token, value, rank in zip(tokens, values, ranks.tolist(), strict=True)
    }
