"""Prompt lookup: a text that repeats itself goes on as it went on before.

Summaries, edits of code and chats quote what they have read. Where the last n tokens stood before,
the tokens that followed there are guessed to follow again. It needs no model and no training.
"""

from collections.abc import Sequence

import numpy as np

from jax_engine.speculation.drafter import Asked
from jax_engine.speculation.text import Text


class NgramDrafter:
    """Looks for the last tokens of a sequence in the sequence itself.

    Args:
        prompt_lookup_min, prompt_lookup_max: The shortest and the longest n. The longest match
            within them wins, and of several the most recent.
    """

    def __init__(self, prompt_lookup_min: int, prompt_lookup_max: int) -> None:
        self._min, self._max = prompt_lookup_min, prompt_lookup_max
        self._texts: dict[int, Text] = {}

    def propose(self, asked: Sequence[Asked]) -> list[list[int]]:
        return [self._propose(one) for one in asked]

    def promises(self, one: Asked) -> bool:
        """Whether the tokens known so far have a match that the next one can complete."""
        tokens = self._tokens(one)
        return self._min == 1 or last_match(tokens, self._min - 1, self._min - 1) is not None

    def forget(self, seq_ids: set[int]) -> None:
        for seq_id in seq_ids:
            self._texts.pop(seq_id, None)

    def _propose(self, one: Asked) -> list[int]:
        tokens = self._tokens(one)
        end = last_match(tokens, self._min, self._max)
        if end is None:
            return []
        behind: list[int] = tokens[end:].tolist()
        while len(behind) < one.most:  # at its end a text that repeats itself goes on with itself
            behind += behind
        return behind[: one.most]

    def _tokens(self, one: Asked) -> np.ndarray:
        return self._texts.setdefault(one.seq_id, Text()).upto(one.token_ids)


def last_match(tokens: np.ndarray, low: int, high: int) -> int | None:
    """Where the most recent of the longest earlier matches of the last tokens ends; None for none.

    Args:
        low, high: How many of the last tokens must match, and how many count at most.

    Returns:
        The place behind a match, which is before the end of the tokens.
    """
    last = len(tokens) - 1
    ends = np.flatnonzero(tokens[:last] == tokens[last]) if last > 0 else np.zeros(0, np.int64)
    length, found = 1, None
    while len(ends):
        if length >= low:
            found = int(ends[-1]) + 1
        if length == high:
            break
        ends = ends[ends >= length]
        ends = ends[tokens[ends - length] == tokens[last - length]]
        length += 1
    return found
