"""What the sampler reads of a request, and what it hands back, without the sampler.

The scheduler deals in tokens, never in logits. It knows what a request asks for and what was drawn,
and that is all here; so the scheduler, the block manager and the prefix cache need no NumPy, and
run wherever Python does.
"""

from collections.abc import Collection, Mapping
from typing import Protocol, runtime_checkable

NO_TOKEN = "its constraints allow no token"
Candidate = tuple[int, float]
"""A token and its log-probability."""


@runtime_checkable
class LogitsOptions(Protocol):
    """What rules 0 to 4 (`logits`) read of a request. Any object with these attributes will do.

    It may have `logits_processors`, `allowed_token_ids`, `bad_words_token_ids`, `guide` and
    `thinking` as well.
    """

    @property
    def repetition_penalty(self) -> float: ...
    @property
    def frequency_penalty(self) -> float: ...
    @property
    def presence_penalty(self) -> float: ...
    @property
    def logit_bias(self) -> Mapping[int, float] | None: ...
    @property
    def min_tokens(self) -> int: ...
    @property
    def stop_token_ids(self) -> Collection[int] | None: ...


@runtime_checkable
class SamplingOptions(LogitsOptions, Protocol):
    """What `sampling` reads of a request. Any object with these attributes will do."""

    @property
    def temperature(self) -> float: ...
    @property
    def top_n_sigma(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def top_p(self) -> float: ...
    @property
    def min_p(self) -> float: ...
