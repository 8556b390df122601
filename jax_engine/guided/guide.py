"""One request's grammar, and the state of the grammar for each of its sequences."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from jax_engine.core.sequence import Sequence

if TYPE_CHECKING:  # imported at the first guided request: most processes have none
    from llguidance import LLExecutor, LLMatcher


@dataclass(slots=True)
class Progress:
    """A matcher and the output tokens that it has taken."""

    matcher: "LLMatcher"
    tokens: list[int] = field(default_factory=list)

    def take(self, tokens: list[int]) -> None:
        """Advances by these tokens; an error stays in the matcher (`is_error`)."""
        if tokens:
            self.matcher.consume_tokens(tokens)
            self.tokens += tokens

    def copy(self) -> "Progress":
        return Progress(self.matcher.deep_copy(), list(self.tokens))


class Guide:
    """The matchers of a request's sequences, by seq_id.

    Args:
        start: A matcher that has taken nothing; it is copied, never changed.
    """

    def __init__(self, start: "LLMatcher") -> None:
        self._start = start
        self._progress: dict[int, Progress] = {}

    def matchers(
        self, seqs: SequenceOf[Sequence], unfinished: SequenceOf[Sequence]
    ) -> "list[LLMatcher]":
        """The matcher of each of `seqs`, after all its output; frees those not in `unfinished`.

        A new sequence (a fork, a beam's child) starts from a copy of the matcher, among those of
        the request, that has taken the longest prefix of its output.
        """
        # Copy before any sequence advances: a fork may start at its parent's last state.
        new = {s.seq_id: self._nearest(s).copy() for s in seqs if s.seq_id not in self._progress}
        self._progress |= new
        for seq in seqs:
            progress = self._progress[seq.seq_id]
            progress.take(seq.token_ids[seq.prompt_len + len(progress.tokens) :])
        alive = {seq.seq_id for seq in unfinished}
        self._progress = {i: one for i, one in self._progress.items() if i in alive}
        return [self._progress[seq.seq_id].matcher for seq in seqs]

    def _nearest(self, seq: Sequence) -> Progress:
        output = seq.output_token_ids
        found = Progress(self._start)
        for one in self._progress.values():
            count = len(one.tokens)
            if count > len(found.tokens) and one.tokens == output[:count]:
                found = one
        return found


def behind(matcher: "LLMatcher", drafts: SequenceOf[int]) -> "LLMatcher":
    """A copy that has taken drafts; it has an error if the grammar does not allow them.

    Without drafts it is the matcher itself.
    """
    if not drafts:
        return matcher
    ahead = matcher.deep_copy()
    ahead.consume_tokens(list(drafts))
    return ahead


def reason_of(matcher: "LLMatcher") -> str:
    """A matcher's error in a line."""
    return reason_in(matcher.get_error())


_ENDLESS = (
    "it refers to itself without end: a $ref, or a rule, leads back to itself and has no "
    "alternative that ends"
)
_TOO_DEEP = "it is nested too deeply: use fewer levels, or a $ref for each part that repeats"
# What llguidance and Python say, and what it means.
_MEANINGS = {
    "NoExtensionBias": _ENDLESS,
    "recursion limit exceeded": _TOO_DEEP,
    "maximum recursion depth exceeded": _TOO_DEEP,
    "schema too large": "the schema is too large: use fewer properties, or fewer values of an enum",
    "lexer configuration (grammar) too big": (
        "its regexes or choices are too large: use fewer of them, or shorter ones"
    ),
}
_QUOTED = 150  # letters of a long grammar that an error shows at each end


def reason_in(error: str) -> str:
    """The first line of an error; those after it show a place, or the parser's state. Of a regex,
    one of them says what is wrong."""
    for term, meaning in _MEANINGS.items():
        if term in error:
            return meaning
    first, *more = error.strip().split("\n")
    if len(first) > 2 * _QUOTED:
        first = f"{first[:_QUOTED]} ... {first[-_QUOTED:]}"
    errors = [one for one in more if one.startswith("error: ")]
    if first.endswith("regex parse error:") and errors:
        return f"{first} {errors[0].removeprefix('error: ')}"
    return first


@cache
def _executor() -> "LLExecutor":
    from llguidance import LLExecutor

    return LLExecutor()


def fill_masks(pairs: "SequenceOf[tuple[LLMatcher, int]]", mask: np.ndarray) -> None:
    """Writes the tokens that each matcher allows into its row of `mask` (uint32 [R, words])."""
    from llguidance.numpy import fill_next_token_bitmask, fill_next_token_bitmask_par

    words = mask.view(np.int32)
    if len(pairs) == 1:
        fill_next_token_bitmask(pairs[0][0], words, pairs[0][1])
    elif pairs:
        fill_next_token_bitmask_par(_executor(), list(pairs), words)
