"""Suffix decoding: a text goes on as it, or an answer before it, went on most often.

Agents and chats say again what they have said: in this request, or in an earlier one. The longest
suffix of the sequence that stood before tells how much of the past is alike, and the places where
it stood vote on each next token (arXiv 2411.04975).
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from jax_engine.speculation.corpus import Corpus
from jax_engine.speculation.drafter import Asked
from jax_engine.speculation.text import NONE, Places, Text

# Places are looked up by their last 4 tokens and, if there are none, by 2: a single token says
# too little. The newest ones vote: so many of the sequence, and so many of others.
KEY_LENGTHS = (4, 2)
MOST_PLACES = 32


class SuffixDrafter:
    """Looks for the last tokens of a sequence in itself and in the outputs of ended ones.

    An output joins the others when its sequence has ended, as far as the drafter has seen it:
    without the tokens that were drawn after it was asked last.

    Args:
        max_tree_depth: The longest suffix, in tokens.
        max_cached_requests: How many outputs of ended sequences are kept; 0: none. The oldest go
            first; they go, too, where all of them have more tokens than `Corpus` keeps.
        max_spec_factor: The most guesses for each token of the suffix.
        min_token_prob: The smallest share of the places that go on as it guesses.
    """

    def __init__(
        self,
        max_tree_depth: int,
        max_cached_requests: int,
        max_spec_factor: float,
        min_token_prob: float,
    ) -> None:
        self._depth, self._factor = max_tree_depth, max_spec_factor
        self._min_share = min_token_prob
        self._keys = sorted({min(n, max_tree_depth) for n in KEY_LENGTHS}, reverse=True)
        self._corpus = Corpus(max_cached_requests, self._keys) if max_cached_requests else None
        self._texts: dict[int, tuple[Text, int]] = {}

    def propose(self, asked: Sequence[Asked]) -> list[list[int]]:
        return [self._propose(one) for one in asked]

    def forget(self, seq_ids: set[int]) -> None:
        for seq_id in sorted(seq_ids & self._texts.keys()):
            text, prompt_len = self._texts.pop(seq_id)
            if self._corpus is not None:
                self._corpus.add(text.tokens[prompt_len:])

    def _propose(self, one: Asked) -> list[int]:
        text, _ = self._texts.setdefault(one.seq_id, (Text(), one.prompt_len))
        tokens = text.upto(one.token_ids)
        for n in self._keys:
            if n <= len(tokens):
                guesses = self._follow(tokens, n, one.count)
                if guesses is not None:
                    return guesses
        return []

    def _follow(self, tokens: np.ndarray, n: int, count: int) -> list[int] | None:
        """Guesses from the places behind the longest suffix; None if it is shorter than n."""
        texts = [_own_places(tokens, n)]
        if self._corpus is not None:
            texts.append(self._corpus.places(tuple(tokens[-n:].tolist()), MOST_PLACES))
        texts = [one for one in texts if len(one.at)]
        if not texts:
            return None
        suffix = tokens[: -self._depth - 1 : -1]
        lengths = np.concatenate([_common(one.before(len(suffix)), suffix) for one in texts])
        longest = int(lengths.max())
        if longest < n:  # only hashes were the same
            return None
        after = np.concatenate(
            [one.after(int(min(count, self._factor * longest))) for one in texts]
        )
        return _likely(after[lengths == longest].tolist(), self._min_share)


def _own_places(tokens: np.ndarray, n: int) -> Places:
    """The newest places where the last n tokens stood before, the newest first."""
    end = len(tokens) - 1
    same = tokens[n - 1 : end] == tokens[end]
    for back in range(1, n):
        same &= tokens[n - 1 - back : end - back] == tokens[end - back]
    at = np.flatnonzero(same)[: -MOST_PLACES - 1 : -1] + n
    return Places(tokens, 0, len(tokens), at)


def _common(before: np.ndarray, suffix: np.ndarray) -> np.ndarray:
    """[N] How many tokens of a suffix, the last one first, stand before each place."""
    differs = np.ones((len(before), len(suffix) + 1), bool)
    np.not_equal(before, suffix, out=differs[:, :-1])
    return differs.argmax(axis=1)


def _likely(after: list[list[int]], min_share: float) -> list[int]:
    """Guesses token by token what stands most often behind the guesses before it.

    Args:
        after: The tokens behind each place; the first ones decide where as many say another.
    """
    guesses: list[int] = []
    going = after
    for k in range(len(after[0])):
        counts = Counter(row[k] for row in going)
        counts.pop(NONE, None)
        if not counts:
            break
        best = max(counts, key=counts.__getitem__)
        if counts[best] / len(after) < min_share:
            break
        guesses.append(best)
        going = [row for row in going if row[k] == best]
    return guesses
