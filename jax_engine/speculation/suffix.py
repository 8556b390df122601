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
# Steps are not planned ahead while a match of so many tokens may come.
WORTH_WAITING = 3


class SuffixDrafter:
    """Looks for the last tokens of a sequence in itself and in the outputs of ended ones.

    An output joins the others when its sequence has ended, as far as the drafter has seen it:
    without the tokens that were drawn after it was asked last. Requests with a `cache_salt` neither
    join nor look there: how fast an answer comes would tell of the others. What one LoRA adapter
    has said tells nothing of what another will say, so each finds its own outputs.

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
        self._texts: dict[int, tuple[Text, int, bool, str | None]] = {}

    def propose(self, asked: Sequence[Asked]) -> list[list[int]]:
        return [self._propose(one) for one in asked]

    def promises(self, one: Asked) -> bool:
        """Whether the next token can complete a match of three: two say little, and come often."""
        tokens = self._tokens(one)
        n = min(len(tokens), self._depth, WORTH_WAITING - 1)
        if len(_own_places(tokens, n).at):
            return True
        if self._corpus is None or not one.shares or n not in self._keys:
            return False
        return len(self._corpus.places(tuple(tokens[-n:].tolist()), 1, one.adapter).at) > 0

    def forget(self, seq_ids: set[int]) -> None:
        for seq_id in sorted(seq_ids & self._texts.keys()):
            text, prompt_len, shares, adapter = self._texts.pop(seq_id)
            if self._corpus is not None and shares:
                self._corpus.add(text.tokens[prompt_len:], adapter)

    def _propose(self, one: Asked) -> list[int]:
        tokens = self._tokens(one)
        for n in self._keys:
            if n <= len(tokens):
                guesses = self._follow(tokens, n, one)
                if guesses is not None:
                    return guesses
        return []

    def _tokens(self, one: Asked) -> np.ndarray:
        new = Text(), one.prompt_len, one.shares, one.adapter
        text, *_ = self._texts.setdefault(one.seq_id, new)
        return text.upto(one.token_ids)

    def _follow(self, tokens: np.ndarray, n: int, one: Asked) -> list[int] | None:
        """Guesses from the places behind the longest suffix; None if it is shorter than n."""
        texts = [_own_places(tokens, n)]
        if self._corpus is not None and one.shares:
            key = tuple(tokens[-n:].tolist())
            texts.append(self._corpus.places(key, MOST_PLACES, one.adapter))
        texts = [text for text in texts if len(text.at)]
        if not texts:
            return None
        suffix = tokens[: -self._depth - 1 : -1]
        lengths = np.concatenate([_common(text.before(len(suffix)), suffix) for text in texts])
        longest = int(lengths.max())
        if longest < n:  # only hashes were the same
            return None
        most = int(min(one.most, self._factor * longest))
        after = np.concatenate([text.after(most) for text in texts])
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
