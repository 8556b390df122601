"""Drafters that need no model, but look up earlier text: prompt lookup and suffix decoding.

Prompt lookup: a text that repeats itself goes on as it went on before. Summaries, edits of code and
chats quote what they have read. Where the last n tokens stood before, the tokens that followed
there are guessed to follow again. It needs no model and no training.

Suffix decoding: a text goes on as it, or an answer before it, went on most often. Agents and chats
say again what they have said: in this request, or in an earlier one. The longest suffix of the
sequence that stood before tells how much of the past is alike, and the places where it stood vote
on each next token (arXiv 2411.04975).

A corpus keeps the texts of earlier requests, and finds where in them some tokens stood. The newest
texts are kept in a ring of tokens. For each length n of a key, each place is linked to the one
before it whose last n tokens have the same hash. So memory does not grow past 30 MB, a token takes
a microsecond or two to add, and a look-up follows one chain.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jax_engine.speculation.drafter import DraftRequest

NONE = -1  # where there is no token


class Text:
    """The tokens of a sequence as an array, which grows by what is new.

    Attributes:
        tokens: All that it was given so far.
    """

    def __init__(self) -> None:
        self._array = np.zeros(256, np.int32)
        self.tokens = self._array[:0]

    def upto(self, token_ids: list[int]) -> np.ndarray:
        length, known = len(token_ids), len(self.tokens)
        if length > len(self._array):
            longer = np.zeros(2 * length, np.int32)
            longer[:known] = self.tokens
            self._array = longer
        self._array[known:length] = token_ids[known:]
        self.tokens = self._array[:length]
        return self.tokens


class Places(NamedTuple):
    """Places between two tokens of a text.

    Attributes:
        array: The text's token at position p is `array[p % len(array)]`.
        first, end: The text has the positions first .. end - 1.
        at: [N] Positions of the tokens behind the places.
    """

    array: np.ndarray
    first: int
    end: int
    at: np.ndarray

    def before(self, count: int) -> np.ndarray:
        """[N, count] The tokens before each place, the nearest first; `NONE` before the text."""
        positions = self.at[:, None] - 1 - np.arange(count)
        return np.where(positions >= self.first, self.array.take(positions, mode="wrap"), NONE)

    def after(self, count: int) -> np.ndarray:
        """[N, count] The tokens behind each place; `NONE` behind the text."""
        positions = self.at[:, None] + np.arange(count)
        return np.where(positions < self.end, self.array.take(positions, mode="wrap"), NONE)


class NgramDrafter:
    """Looks for the last tokens of a sequence in the sequence itself.

    Args:
        prompt_lookup_min, prompt_lookup_max: The shortest and the longest n. The longest match
            within them wins, and of several the most recent.
    """

    def __init__(self, prompt_lookup_min: int, prompt_lookup_max: int) -> None:
        self._min, self._max = prompt_lookup_min, prompt_lookup_max
        self._texts: dict[int, Text] = {}

    def propose(self, asked: Sequence[DraftRequest]) -> list[list[int]]:
        return [self._propose(one) for one in asked]

    def promises(self, one: DraftRequest) -> bool:
        """Whether the tokens known so far have a match that the next one can complete."""
        tokens = self._tokens(one)
        return self._min == 1 or last_match(tokens, self._min - 1, self._min - 1) is not None

    def forget(self, seq_ids: set[int]) -> None:
        for seq_id in seq_ids:
            self._texts.pop(seq_id, None)

    def _propose(self, one: DraftRequest) -> list[int]:
        tokens = self._tokens(one)
        end = last_match(tokens, self._min, self._max)
        if end is None:
            return []
        behind: list[int] = tokens[end:].tolist()
        while len(behind) < one.most:  # at its end a text that repeats itself goes on with itself
            behind += behind
        return behind[: one.most]

    def _tokens(self, one: DraftRequest) -> np.ndarray:
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


SIZE = 2**20  # tokens that are kept
HEADS = 2**18  # chains of each key length
DIGITS = 12  # of a digest


class Corpus:
    """The newest texts, of at most `SIZE` tokens together.

    Args:
        num_texts: How many are kept at most, at least 1.
        key_lengths: How many tokens `places` is asked for.
    """

    def __init__(self, num_texts: int, key_lengths: Sequence[int]) -> None:
        self._num_texts = num_texts
        self._starts: deque[int] = deque()
        self._end = 1  # position 0 ends each chain
        self._ring = np.zeros(SIZE, np.int32)
        self._chains = {n: _Chains() for n in key_lengths}

    def add(self, text: np.ndarray, adapter: str | None = None) -> None:
        """Adds a text, of which it keeps the last half `SIZE`; the oldest ones make room.

        Args:
            adapter: Whose text it is: only the same adapter finds it.
        """
        tokens, start = text[-SIZE // 2 :].tolist(), self._end
        self._starts.append(start)
        self._end += len(tokens) + 1  # a gap, where no text goes on into the next
        while len(self._starts) > self._num_texts or self._end - self._starts[0] > SIZE:
            self._starts.popleft()
        self._ring[np.arange(start, self._end) % SIZE] = [*tokens, NONE]
        own = _own_part(adapter)
        for n, chains in self._chains.items():
            for i in range(n, len(tokens)):
                chains.add((*own, *tokens[i - n : i]), start + i)

    def places(self, key: tuple[int, ...], most: int, adapter: str | None = None) -> Places:
        """The newest places, at most `most`, behind these tokens or others of the same hash.

        A token of the same text stands behind each of them. The newest comes first.
        """
        first = self._starts[0] if self._starts else self._end
        newest = self._chains[len(key)].newest((*_own_part(adapter), *key), first, most)
        at = np.fromiter(newest, np.int64)
        return Places(self._ring, first, self._end, at)


def _own_part(adapter: str | None) -> tuple[int, ...]:
    """What an adapter's keys begin with. Adapters share the ring, and chains by chance alone."""
    return () if adapter is None else (int(adapter[:DIGITS], 16),)


class _Chains:
    """Places by the hash of the tokens before them."""

    def __init__(self) -> None:
        # Views, since NumPy's own way to a single number is slow
        self._newest = memoryview(np.zeros(HEADS, np.int64))
        self._earlier = memoryview(np.zeros(SIZE, np.int64))

    def add(self, key: tuple[int, ...], position: int) -> None:
        chain = hash(key) % HEADS
        self._earlier[position % SIZE] = self._newest[chain]
        self._newest[chain] = position

    def newest(self, key: tuple[int, ...], first: int, most: int) -> Iterator[int]:
        position = self._newest[hash(key) % HEADS]
        for _ in range(most):
            if position < first:
                return
            yield position
            position = self._earlier[position % SIZE]


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

    def propose(self, asked: Sequence[DraftRequest]) -> list[list[int]]:
        return [self._propose(one) for one in asked]

    def promises(self, one: DraftRequest) -> bool:
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

    def _propose(self, one: DraftRequest) -> list[int]:
        tokens = self._tokens(one)
        for n in self._keys:
            if n <= len(tokens):
                guesses = self._follow(tokens, n, one)
                if guesses is not None:
                    return guesses
        return []

    def _tokens(self, one: DraftRequest) -> np.ndarray:
        new = Text(), one.prompt_len, one.shares, one.adapter
        text, *_ = self._texts.setdefault(one.seq_id, new)
        return text.upto(one.token_ids)

    def _follow(self, tokens: np.ndarray, n: int, one: DraftRequest) -> list[int] | None:
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
