"""`thinking_token_budget`: after so many tokens of reasoning, its end is written for the model.

Reasoning begins behind the first begin marker of an output, or in the prompt, if the last begin
marker there has no end behind it; then what the prompt has of it counts, too. It ends with the
first end marker behind that. The tokens of an end marker count until it is complete. When as many
tokens as the budget have come without one, the tokens of the end marker are forced, one after
another. Only the first reasoning of an output is limited, as in vLLM.

The rule depends on a sequence's tokens alone, so nothing changes when a sequence is preempted,
forked, or computed with guesses.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from jax_engine.config.reasoning_markers import ReasoningMarkers
from jax_engine.core.sequence_group import NEVER, SequenceGroup
from jax_engine.sampling.masked_steps import bad_word_tokens
from jax_engine.tokenization.tokenizer import Tokenizer

type Marker = tuple[int, ...]
MAX_GAP = 16  # tokens of white space between an end marker and the end of a prompt


@dataclass(frozen=True)
class MarkerTokens:
    """The markers of a model as tokens.

    Attributes:
        begins, ends: Each way to write them.
        close: What is forced; it ends with one of `ends`.
        inside: An output begins with reasoning, unless the prompt has ended it.
    """

    begins: tuple[Marker, ...]
    ends: tuple[Marker, ...]
    close: Marker
    inside: bool = False

    @classmethod
    def of(cls, markers: ReasoningMarkers, tokenizer: Tokenizer) -> Self:
        """The tokens that a tokenizer makes of markers, with and without a space before them."""

        def encode(text: str) -> list[int]:
            return tokenizer.encode(text, add_special_tokens=False)

        def tokens(*texts: str) -> tuple[Marker, ...]:
            return tuple(map(tuple, bad_word_tokens(filter(None, texts), encode)))

        close = tuple(encode(markers.close or markers.end))
        ends = (*tokens(markers.end, markers.or_end, *markers.other_ends), close)
        begins = tokens(markers.begin, markers.or_begin)
        return cls(begins, tuple(dict.fromkeys(ends)), close, markers.inside)


class _Place(NamedTuple):
    """Where a sequence is.

    Attributes:
        begun: The length of the sequence at which its reasoning begins; None: not yet.
        searched: Up to which length it was searched for the next marker.
        over: Whether its reasoning has ended.
    """

    begun: int | None
    searched: int
    over: bool = False


@dataclass(slots=True)
class ThinkingBudget:
    """The budget of one request, and how far each of its sequences is.

    Args:
        prompt_begun: The length of the prompt at which open reasoning begins; None: none is open.
    """

    markers: MarkerTokens
    budget: int
    prompt_len: int
    prompt_begun: int | None
    _places: dict[int, _Place] = field(default_factory=dict)

    @classmethod
    def of(
        cls, markers: MarkerTokens, budget: int, prompt: Sequence[int], tokenizer: Tokenizer | None
    ) -> Self:
        """The budget of a request with this prompt."""
        tokens = list(prompt)
        begun, ended = last_complete(tokens, markers.begins), last_complete(tokens, markers.ends)
        if begun <= ended:
            is_open = markers.inside and not (ended and _is_blank(tokens[ended:], tokenizer))
            return cls(markers, budget, len(tokens), len(tokens) if is_open else None)
        return cls(markers, budget, len(tokens), begun)

    @property
    def num_free(self) -> int:
        """The tokens of an output that come before the first that may be forced."""
        if self.prompt_begun is None:
            return 1 + self.budget
        return max(0, self.prompt_begun + self.budget - self.prompt_len)

    def forced(self, seq_id: int, tokens: list[int], drafts: Sequence[int] = ()) -> int | None:
        """The token that must follow on a sequence and its drafts; None: any may.

        Args:
            tokens: Prompt and output, as far as it is known for good.
        """
        begin = _Place(self.prompt_begun, self.prompt_len)
        place = self._places[seq_id] = self._moved(self._places.get(seq_id, begin), tokens)
        if drafts:
            tokens = [*tokens, *drafts]
            place = self._moved(place, tokens)
        if place.begun is None or place.over:
            return None
        due, close = max(place.begun + self.budget, self.prompt_len), self.markers.close
        if len(tokens) < due:
            return None
        # A grammar may put the marker off, as within a character of several tokens.
        written = min(len(tokens) - due, len(close) - 1)
        while tuple(tokens[len(tokens) - written :]) != close[:written]:
            written -= 1
        return close[written]

    def _moved(self, place: _Place, tokens: list[int]) -> _Place:
        if place.over:
            return place
        begun, searched = place.begun, place.searched
        if begun is None:
            begun = first_complete(tokens, self.markers.begins, searched + 1)
            if begun is None:
                return _Place(None, len(tokens))
            searched = begun
        ended = first_complete(tokens, self.markers.ends, searched + 1, begun)
        return _Place(begun, len(tokens), ended is not None)

    def release(self, group: SequenceGroup) -> None:
        """Frees the request of its masks once all that it still writes is behind its reasoning."""
        if group.num_left or group.samples_per_seq != 1:
            return
        if all(
            (place := self._places.get(seq.seq_id)) is not None and place.over
            for seq in group.unfinished()
        ):
            group.num_free = NEVER


def _is_blank(tokens: list[int], tokenizer: Tokenizer | None) -> bool:
    """Whether these few tokens are white space, or none."""
    if tokenizer is None or len(tokens) > MAX_GAP:
        return not tokens
    return not tokenizer.decode(tokens, skip_special_tokens=False).strip()


def first_complete(
    tokens: list[int], markers: Sequence[Marker], least: int, begin: int = 0
) -> int | None:
    """The first length of `tokens`, from `least` on, at which a marker has just been completed.

    Args:
        begin: A marker that begins before this place does not count.
    """
    found: int | None = None
    for marker in markers:
        at = max(least, begin + len(marker)) - 1  # of its last token
        end = len(tokens) if found is None else found
        while True:
            try:
                at = tokens.index(marker[-1], at, end)
            except ValueError:
                break
            if tuple(tokens[at + 1 - len(marker) : at + 1]) == marker:
                found = at + 1
                break
            at += 1
    return found


def last_complete(tokens: list[int], markers: Sequence[Marker]) -> int:
    """The last length of `tokens` at which a marker has just been completed; 0: at none."""
    found = 0
    for marker in markers:
        for end in range(len(tokens), max(found, len(marker) - 1), -1):
            if tokens[end - 1] == marker[-1] and tuple(tokens[end - len(marker) : end]) == marker:
                found = end
                break
    return found
