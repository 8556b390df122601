"""Log-probabilities of tokens, as objects or in flat lists."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

import msgspec


class Logprob(msgspec.Struct, frozen=True, gc=False):
    """Log-probability of one token, from the raw logits (before penalties and temperature).

    In a beam search it comes from the processed logits, which the search compares.

    Attributes:
        logprob: Natural logarithm, <= 0.
        rank: 1 for the most probable token of the vocabulary.
        decoded_token: The token's own text, None without a tokenizer.
    """

    logprob: float
    rank: int
    decoded_token: str | None = None


@dataclass(slots=True)
class FlatLogprobs(Sequence[dict[int, Logprob] | None]):
    """For each position, token id to `Logprob`, stored in a few flat lists.

    Position i has the entries `start_indices[i]:end_indices[i]` of the other lists; a position
    without entries reads as None. Reading a position makes its dict.
    """

    start_indices: list[int] = field(default_factory=list)
    end_indices: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    decoded_tokens: list[str | None] = field(default_factory=list)

    @classmethod
    def of(cls, positions: Iterable[Mapping[int, Logprob] | None]) -> "FlatLogprobs":
        flat = cls()
        flat.extend(positions)
        return flat

    def extend(self, positions: Iterable[Mapping[int, Logprob] | None]) -> None:
        for position in positions:
            self.append(position)

    def append(self, position: Mapping[int, Logprob] | None) -> None:
        self.start_indices.append(len(self.token_ids))
        for token, entry in (position or {}).items():
            self.token_ids.append(token)
            self.logprobs.append(entry.logprob)
            self.ranks.append(entry.rank)
            self.decoded_tokens.append(entry.decoded_token)
        self.end_indices.append(len(self.token_ids))

    def __len__(self) -> int:
        return len(self.start_indices)

    @overload
    def __getitem__(self, index: int) -> dict[int, Logprob] | None: ...

    @overload
    def __getitem__(self, index: slice) -> "FlatLogprobs": ...

    def __getitem__(self, index: int | slice) -> "dict[int, Logprob] | FlatLogprobs | None":
        if isinstance(index, slice):
            return FlatLogprobs.of([self[i] for i in range(*index.indices(len(self)))])
        entries = range(self.start_indices[index], self.end_indices[index])
        return {
            self.token_ids[i]: Logprob(self.logprobs[i], self.ranks[i], self.decoded_tokens[i])
            for i in entries
        } or None
