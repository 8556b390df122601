"""§4.4, sequences: one sampled continuation of a prompt each, and the token ids that end it.

A `StopRule` says when token ids alone end a sequence; the engine checks stop strings. The checks
have the order of other engines: end of sequence, stop tokens, length. So an output of maximal
length that ends with a stop token has finish reason "stop", not "length".
"""

from collections.abc import Collection
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol, Self

from jax_engine.core.prefix_cache import Node

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
            length: Length of the sequence in tokens, its prompt and this token included.
        """
        if length >= self.min_len:
            if token in self.eos_token_ids:
                return "stop", None
            if token in self.stop_token_ids:
                return "stop", token
        return ("length", None) if length >= self.max_len else None


type Candidate = tuple[int, float]  # a token id and its log-probability


class SequenceStatus(Enum):
    """Whether a sequence waits, runs, is swapped out, or how it has finished."""

    WAITING = auto()
    RUNNING = auto()
    SWAPPED = auto()
    FINISHED_STOPPED = auto()
    FINISHED_LENGTH = auto()
    FINISHED_ABORTED = auto()


FINISHED = {
    "stop": SequenceStatus.FINISHED_STOPPED,
    "length": SequenceStatus.FINISHED_LENGTH,
    "abort": SequenceStatus.FINISHED_ABORTED,
}


@dataclass(slots=True, eq=False)
class Sequence:
    """One sampled continuation of a prompt.

    Attributes:
        index: Place in its group: 0 for the first, i for the i-th child of the fork. For a beam:
            its rank, best first.
        token_ids: Prompt and output as far as known. Only ever appended to.
        prompt_len: Length of the prompt, in tokens.
        seq_id: Given by the scheduler, -1 before; names the block table.
        num_computed_tokens: Leading positions whose KV is in the cache.
        pending: -(r + 1) while the next token is being sampled: it is sample r of a step whose
            tokens have not been returned yet. Else 0.
        in_flight: Whether a step whose tokens have not been returned samples its next token, which
            the steps behind are not fed: until then it must not be scheduled.
        finish_reason: "stop", "length" or "abort", as `SchedulerState.end` was told; None while
            unfinished. A beam that no new one continues ends with "abort".
        stop_reason: The stop string or stop token id; None for end of sequence.
        attached: Whether it may be scheduled. False for a sibling in a group that was recomputed,
            until the leader has computed the prompt blocks that they share.
        is_recomputed: Whether it has lost its blocks once. What it has computed before is read from
            the prefix cache only where it would be computed to the same bits.
        chain: Content of its leading full blocks, each hashed once (prefix caching).
        candidates: For a beam that waits until all beams of its group are computed: its possible
            next tokens, best first.
        cumulative_logprob: For a beam: the sum over its output.
        token_logprobs: For a beam: log-probability and rank of each output token.
        token_time: When its last token came; None before the first. Set by the engine.
    """

    index: int
    token_ids: list[int]
    prompt_len: int
    seq_id: int = -1
    num_computed_tokens: int = 0
    pending: int = 0
    in_flight: bool = False
    status: SequenceStatus = SequenceStatus.WAITING
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    attached: bool = True
    is_recomputed: bool = False
    chain: list[Node] = field(default_factory=list)
    candidates: SequenceOf[Candidate] | None = None
    cumulative_logprob: float = 0.0
    token_logprobs: list[tuple[float, int]] = field(default_factory=list)
    token_time: float | None = None

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens, a pending one included."""
        return len(self.token_ids) + (self.pending < 0)

    @property
    def output_len(self) -> int:
        return len(self.token_ids) - self.prompt_len

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.prompt_len :]

    def make_child(self, index: int) -> "Sequence":
        """A sibling with the same tokens and the same computed positions, and no id yet."""
        return Sequence(
            index,
            list(self.token_ids),
            self.prompt_len,
            num_computed_tokens=self.num_computed_tokens,
            status=self.status,
            cumulative_logprob=self.cumulative_logprob,
            token_logprobs=list(self.token_logprobs),
        )
