"""When token ids alone end a sequence; the engine checks stop strings.

The checks have the order of other engines: end of sequence, stop tokens, length. So an output
of maximal length that ends with a stop token has finish reason "stop", not "length".
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, Self

NO_TOKEN = "its constraints allow no token"  # stop_reason of a request that cannot go on


class SamplingLimits(Protocol):
    """The part of a request's `SamplingParams` that the controller reads."""

    @property
    def n(self) -> int: ...
    @property
    def best_of(self) -> int | None: ...
    @property
    def max_tokens(self) -> int | None: ...
    @property
    def min_tokens(self) -> int: ...
    @property
    def stop_token_ids(self) -> Collection[int] | None: ...
    @property
    def ignore_eos(self) -> bool: ...
    @property
    def use_beam_search(self) -> bool: ...
    @property
    def length_penalty(self) -> float: ...
    @property
    def early_stopping(self) -> bool | str: ...
    @property
    def has_penalties(self) -> bool: ...
    @property
    def wants_prompt(self) -> bool: ...
    @property
    def drops_output(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class StopRule:
    """One request's limits, computed once, so that checking a token takes few comparisons.

    Attributes:
        max_len: Length in tokens, prompt included, at which a sequence ends by "length".
        min_len: Length in tokens, prompt included, below which no token id ends it.
        eos_token_ids: End it by "stop" without a stop reason; empty when they are ignored.
        stop_token_ids: End it by "stop", with the token as the stop reason.
    """

    max_len: int
    min_len: int
    eos_token_ids: frozenset[int]
    stop_token_ids: frozenset[int]

    @classmethod
    def for_request(
        cls,
        params: SamplingLimits,
        eos_token_ids: Collection[int],
        prompt_len: int,
        max_model_len: int,
    ) -> Self:
        """The rule of a request in an engine with this `max_model_len`."""
        max_len = max_model_len
        if params.max_tokens is not None:
            max_len = min(max_len, prompt_len + params.max_tokens)
        return cls(
            max_len,
            prompt_len + params.min_tokens,
            frozenset(() if params.ignore_eos else eos_token_ids),
            frozenset(params.stop_token_ids or ()),
        )

    def check(self, token: int, length: int) -> tuple[str, int | None] | None:
        """Returns (finish_reason, stop_reason) if a sequence's last token ends it, else None.

        Args:
            length: Of the sequence in tokens, its prompt and this token included.
        """
        if length >= self.min_len:
            if token in self.eos_token_ids:
                return "stop", None
            if token in self.stop_token_ids:
                return "stop", token
        return ("length", None) if length >= self.max_len else None
