"""One output that a client was given beside the oracle's: rounding aside, they are the same."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reference.outputs import Completion, Logprob, Output, Request
from tests.support.engine_pair import TOLERANCE

NOTHING: Mapping[int, int] = {}


def compare_one(
    request: Request, mine: Any, theirs: Output, before: Mapping[int, int] = NOTHING
) -> None:
    """One output with the oracle's.

    Args:
        before: How many tokens of each sample are in deltas that were given before.
    """
    assert (mine.prompt, mine.prompt_token_ids) == (None, request.prompt_token_ids)
    assert [one.index for one in mine.outputs] == [one.index for one in theirs.outputs]
    for one, wanted in zip(mine.outputs, theirs.outputs, strict=True):
        assert _told(one) == _told(wanted)
        _close([one.cumulative_logprob], [wanted.cumulative_logprob])
        rows = request.samples[one.index].logprobs[before.get(one.index, 0) :]
        _compare_logprobs(one.logprobs, wanted.logprobs, rows)
    if theirs.prompt_logprobs is None:
        assert mine.prompt_logprobs is None
        return
    reached = len(request.prompt_token_ids)
    if theirs.finished and not any(one.token_ids for one in theirs.outputs):  # aborted in it
        reached = max([0, *(i for i, one in enumerate(mine.prompt_logprobs) if one is not None)])
    assert len(mine.prompt_logprobs) == len(theirs.prompt_logprobs)
    entries = mine.prompt_logprobs[1:reached], theirs.prompt_logprobs[1:reached]
    _compare_logprobs(*entries, request.prompt_logprobs)


def _told(one: Any | Completion) -> tuple[Any, ...]:
    return one.text, one.token_ids, one.finish_reason, one.stop_reason


def _compare_logprobs(mine: Any, theirs: Any, rows: Sequence[np.ndarray]) -> None:
    """Where two values are as good as equal, either may come first.

    Args:
        rows: The log-probabilities [V] of the first entry, of the second, ...
    """
    if theirs is None:
        assert mine is None
        return
    for entry, wanted, row in zip(mine, theirs, rows, strict=False):
        common = entry.keys() & wanted.keys()
        values = sorted(one.logprob for one in wanted.values())
        _close([entry[i].logprob for i in common], [wanted[i].logprob for i in common])
        for token, one in entry.items():
            most, least = (row > row[token] + sign * 10 * TOLERANCE for sign in (-1, 1))
            assert 1 + least.sum() <= one.rank <= most.sum(), f"rank of {token} in {entry}"
        if list(entry) != list(wanted) or _words(entry) != _words(wanted):
            differ = [list(one.values())[-1].logprob for one in (entry, wanted)]
            gaps = [*np.diff(values), abs(differ[0] - differ[1])]
            near = list(entry) != list(wanted) and min(gaps) < 10 * TOLERANCE
            assert near, f"{entry} is not {wanted}"
    assert len(mine) == len(theirs) <= len(rows)


def _words(entry: dict[int, Any | Logprob]) -> list[str | None]:
    return [one.decoded_token for one in entry.values()]


def _close(mine: list[float | None], theirs: list[float | None]) -> None:
    for one, wanted in zip(mine, theirs, strict=True):
        assert (one is None) == (wanted is None)
        assert one is None or wanted is None or abs(one - wanted) < 10 * TOLERANCE
