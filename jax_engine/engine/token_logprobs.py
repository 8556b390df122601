"""Converts the sampler's arrays to the log-probabilities that a request asked for."""

import numpy as np

from jax_engine.engine.pieces import LogprobLists
from jax_engine.sampling_params import SamplingParams
from jax_engine.step import SampleLogprobs


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
