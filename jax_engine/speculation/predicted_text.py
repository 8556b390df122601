"""A text that a client expects its answer to repeat: while the answer does, it tells what follows.

A client that has a file rewritten with a few changes knows most of the answer beforehand. An answer
is followed through that text token by token. Where it leaves the text, nothing is guessed from it
until the answer comes back to it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from jax_engine.core.sequence import Sequence as TokenSequence

# An answer that has left the text is in it again with the token that it would have gone on with
# (something was put in between), or with so many tokens that stand together somewhere. The more
# of them stand there, the better; no more than `LONGEST` are compared.
SHORTEST, LONGEST = 2, 16


@dataclass(slots=True)
class _Place:
    """Where one answer is in the text.

    Attributes:
        said: Places of the text's tokens that the answer has said.
        seen: How many tokens of the answer were followed.
        at: The token of the text that comes next, if it is `inside`; else, where it left the text.
        guessed: Whether the step under way has guesses out of the text.
        num_accepted: Guesses out of the text that became output.
    """

    matched: set[int] = field(default_factory=set)
    seen: int = 0
    at: int = 0
    inside: bool = False
    guessed: bool = False
    num_accepted: int = 0


@dataclass(slots=True)
class PredictedText:
    """The text of a request, and where each of its sequences is in it.

    Attributes:
        text: [P] Token ids.
    """

    text: np.ndarray
    _places: dict[int, _Place] = field(default_factory=dict)

    @classmethod
    def of(cls, token_ids: Sequence[int]) -> "PredictedText | None":
        """None: there is no text."""
        return cls(np.array(token_ids, np.int32)) if token_ids else None

    def guesses(self, seq: TokenSequence, most: int) -> list[int]:
        """What follows in the text; nothing where the answer is not in it."""
        place = self._follow(seq)
        found: list[int] = []
        if place.inside:
            found = self.text[place.at : place.at + most].tolist()
        place.guessed = bool(found)
        return found

    def learn(self, seq: TokenSequence, drafts: Sequence[int], known: int) -> None:
        """Counts the right guesses of a step.

        Args:
            known: How many tokens the sequence had when it was guessed how it goes on.
        """
        place = self._places.get(seq.index)
        if place is None or not place.guessed:
            return
        place.guessed = False
        for draft, token in zip(drafts, seq.token_ids[known:], strict=False):
            if draft != token:
                break
            place.num_accepted += 1

    def counts(self, seqs: Iterable[TokenSequence]) -> tuple[int, int]:
        """Tokens of these sequences that were guessed out of the text and right, and tokens of the
        text that a sequence did not say, once for each sequence."""
        places = [self._follow(seq) for seq in seqs]
        missing = sum(len(self.text) - len(one.matched) for one in places)
        return sum(one.num_accepted for one in places), missing

    def _follow(self, seq: TokenSequence) -> _Place:
        """Follows what is new in a sequence."""
        place = self._places.get(seq.index)
        if place is None:
            place = self._places[seq.index] = _Place()
        first = seq.prompt_len
        for end in range(first + place.seen + 1, len(seq.token_ids) + 1):
            self._take(place, seq.token_ids[max(first, end - LONGEST) : end])
            place.seen += 1
        return place

    def _take(self, place: _Place, last: list[int]) -> None:
        """Takes a token.

        Args:
            last: The last tokens of the answer, of which it is the last.
        """
        length = 1
        if place.at == len(self.text) or self.text[place.at] != last[-1]:
            place.inside = False
            found = _found(self.text, last, place.at)
            if found is None:
                return
            place.at, length = found
        else:
            place.at += 1
        place.inside = True
        place.matched.update(range(place.at - length, place.at))


def _found(text: np.ndarray, last: list[int], at: int) -> tuple[int, int] | None:
    """Where the most of these tokens stand in a text: the place behind them, and how many they are.

    Args:
        at: The first of several equally good places behind this one is chosen, else the last one.
    """
    ends, best = np.flatnonzero(text == last[-1]) + 1, None
    for length in range(1, len(last) + 1):
        ends = ends[ends >= length]
        ends = ends[text[ends - length] == last[-length]]
        if not len(ends):
            break
        if length >= SHORTEST:
            behind = ends[ends >= at]
            best = int(behind[0] if len(behind) else ends[-1]), length
    return best
