"""Sequences, and the group of sequences that one request becomes (paper 4.4 and 5).

A *sequence* is a prompt and what was generated from it so far. A request for several samples is a
*sequence group*: it starts as one sequence, is prefilled once, and forks when its first tokens are
drawn (4.4, "Parallel sampling"). The sequences of a group are scheduled, preempted and resumed
together (4.5), because they share blocks, so they have one status in common.

A request may ask for more samples than fit at once. Then its group is run in *parts*, one after the
other: when the sequences of a part have all ended, the next part starts with one sequence, from the
prompt, in the group's place of the order of service. Samples keep their numbers: of five samples in
parts of two, the third part is sample 4 alone. What the scheduler looks at is the present part,
since sequences that have ended need nothing; `seqs` has the sequences of all parts so far.

A sequence has `num_computed_tokens` positions in the KV cache, and always some tokens more than
that: at least the newest, whose key and value are written when it is fed to the model.

>>> from types import SimpleNamespace
>>> params = SimpleNamespace(n=2, best_of=None, max_tokens=3, min_tokens=0, stop_token_ids=(9,),
...                          ignore_eos=False)
>>> group = SequenceGroup("r0", [5, 6, 7], params, eos_token_ids={2})
>>> group.num_samples, group.num_reserved, group.leader.token_ids
(2, 2, [5, 6, 7])
>>> group.part_size = 1                               # one after the other
>>> group.num_reserved, group.start_next_part(), group.seqs[1].index, group.start_next_part()
(1, True, 1, False)
>>> _ = group.seqs.pop()
>>> group.leader.append(2)
>>> finish_reason(group.leader, group, max_model_len=100)
('stop', None)
>>> group.leader.append(9)
>>> finish_reason(group.leader, group, max_model_len=100)
('stop', 9)
>>> group.leader.append(9)                            # the third, and a stop token even so
>>> finish_reason(group.leader, group, max_model_len=100)
('stop', 9)
>>> group.leader.token_ids[-1] = 8
>>> finish_reason(group.leader, group, max_model_len=100)
('length', None)
"""

from collections.abc import Collection
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Literal, Protocol

from reference.adapter_slots import Adapter
from reference.prefix_cache import Content, Salt
from reference.sampling_options import Candidate, SamplingOptions

if TYPE_CHECKING:
    import numpy as np  # only named: the sequences carry the engine's arrays unread

FinishReason = Literal["stop", "length", "abort"]
NO_TOKEN_ID = -1
"""In a prompt that is given as vectors: the id of a position that has no token."""


class SequenceStatus(Enum):
    """Where a sequence is: in which of the scheduler's queues, or why it left them."""

    WAITING = "waiting"
    RUNNING = "running"
    SWAPPED = "swapped"
    FINISHED_STOPPED = "stop"
    FINISHED_LENGTH = "length"
    FINISHED_ABORTED = "abort"


class RequestParams(SamplingOptions, Protocol):
    """What is read of a request's parameters. The scheduler reads no more than is listed here
    with `min_tokens` and `stop_token_ids`, the sampler the rest of `SamplingOptions`. There may be
    more: `use_beam_search`, `length_penalty` and `early_stopping`; `logprobs`, `prompt_logprobs`;
    `pooling`.
    """

    @property
    def n(self) -> int: ...
    @property
    def best_of(self) -> int | None: ...
    @property
    def max_tokens(self) -> int | None: ...
    @property
    def ignore_eos(self) -> bool: ...
    @property
    def seed(self) -> int | None: ...


@dataclass(eq=False)
class Sequence:
    """One prompt with its output. `seq_id` is given by the scheduler when it accepts the group."""

    token_ids: list[int]
    prompt_len: int
    index: int = 0
    """Which sample of its request it is: 0 for the first, i for the i-th child of the fork."""
    seq_id: int = -1
    num_computed_tokens: int = 0
    status: SequenceStatus = SequenceStatus.WAITING
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    logprobs: list[float] = field(default_factory=list)
    """The log-probability that the model gave each output token; the engine fills this. A beam has
    those that the search went by."""
    distributions: "list[np.ndarray] | None" = None
    """If `logprobs` are asked for: of each output token, V log-probabilities of what could have
    stood in its place; the engine fills this."""
    lost_blocks: bool = False
    """It was preempted and computed again: of the prefix cache it takes only what it had itself."""
    attached: bool = False
    """Its blocks below num_computed_tokens exist. (A sibling of a rebuilt group waits for this.)"""
    candidates: list[Candidate] | None = None
    """What a beam drew, until the other beams of its group have drawn as well."""
    cumulative_logprob: float = 0.0
    """The sum of a beam's logprobs."""
    score: float = 0.0
    """What hypotheses are compared by: that of a beam that has ended."""
    drafts: list[int] = field(default_factory=list)
    """Guesses for the tokens behind its last one (`speculation`). Whoever drives the scheduler sets
    them before a step is planned; the plan takes them or forgets them."""

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.prompt_len :]

    @property
    def output_len(self) -> int:
        return len(self.token_ids) - self.prompt_len

    @property
    def num_uncomputed_tokens(self) -> int:
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    def append(self, token_id: int) -> None:
        self.token_ids.append(token_id)

    def fork(self, index: int, seq_id: int) -> "Sequence":
        """A sibling that goes its own way from here."""
        return Sequence(
            list(self.token_ids),
            self.prompt_len,
            index,
            seq_id,
            self.num_computed_tokens,
            self.status,
            logprobs=list(self.logprobs),
            distributions=None if self.distributions is None else list(self.distributions),
            attached=self.attached,
        )

    def finish(self, reason: FinishReason, stop_reason: int | str | None) -> None:
        self.status = SequenceStatus(reason)
        self.finish_reason = reason
        self.stop_reason = stop_reason


@dataclass(eq=False)
class SequenceGroup:
    """One request: a prompt, how to continue it, and the sequences it has become so far."""

    request_id: str
    prompt_token_ids: SequenceOf[int]
    params: RequestParams
    eos_token_ids: Collection[int] = ()
    arrival_time: float = 0.0
    priority: int = 0
    cache_salt: str | None = None
    adapter: Adapter | None = None
    """What its sequences are computed with beside the model (`adapter_slots`); None: nothing."""
    prompt_embeds: "np.ndarray | None" = None
    """A vector for each position of the prompt, which the model reads in place of its tokens'; the
    tokens are NO_TOKEN_ID then. None: the prompt is of tokens."""
    seqs: list[Sequence] = field(init=False)
    adapter_slot: int = field(default=0, init=False)
    """Where its adapter lies while it runs; otherwise 0, as without an adapter."""
    forked: bool = field(default=False, init=False)
    add_index: int = field(default=-1, init=False)
    part_size: int = field(init=False)
    """Samples of a part; the last part has the rest. The scheduler sets it, by what it can promise;
    until then, and for beam search always, all samples are one part."""
    first_sample: int = field(default=0, init=False)
    """Where the present part begins."""
    hypotheses: list[Sequence] = field(default_factory=list, init=False)
    """The outputs of a beam search that have ended, best first; `seqs` are the live beams."""
    num_cached_tokens: int = field(default=-1, init=False)
    """How many tokens of the prompt were found in the cache when it was first admitted; -1 before
    that, and in the modes that have no cache."""
    prompt_logprobs: "list[np.ndarray | None] | None" = field(default=None, init=False)
    """If asked for: at each position of the prompt but the first, V log-probabilities of what could
    have stood there; the engine fills this."""

    def __post_init__(self) -> None:
        self.seqs = [self._new_sequence(0)]
        self.part_size = self.num_samples
        if getattr(self.params, "prompt_logprobs", None) is not None:
            self.prompt_logprobs = [None] * self.prompt_len

    @property
    def salt(self) -> Salt:
        """What divides its cached blocks from others': they are another model's with an adapter."""
        return self.cache_salt if self.adapter is None else (self.adapter, self.cache_salt)

    def contents(self, token_ids: SequenceOf[int]) -> SequenceOf[Content]:
        """What the positions of a sequence hold, by which the prefix cache knows them."""
        if self.prompt_embeds is None:
            return token_ids
        vectors = [vector.tobytes() for vector in self.prompt_embeds]
        return [*vectors, *token_ids[self.prompt_len :]][: len(token_ids)]

    @property
    def prompt_len(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def num_samples(self) -> int:
        """How many sequences the request becomes: best_of, or n. Of beam search, the width."""
        return self.params.n if self.params.best_of is None else self.params.best_of

    @property
    def num_samples_now(self) -> int:
        """How many of them the present part becomes."""
        return min(self.part_size, self.num_samples - self.first_sample)

    @property
    def beam_search(self) -> bool:
        return bool(getattr(self.params, "use_beam_search", False))

    @property
    def reads_cache(self) -> bool:
        """May blocks of its prompt be found? Not if something is wanted of each of its tokens."""
        wanted = ("prompt_logprobs", "pooling")
        return all(getattr(self.params, name, None) is None for name in wanted)

    @property
    def num_reserved(self) -> int:
        """Sequences to keep room for: those it will have, or once forked, those it still has.

        Beams come and go, so their number says nothing of how many there will be.
        """
        alive = self.forked and not self.beam_search
        return len(self.unfinished) if alive else self.num_samples_now

    @property
    def unfinished(self) -> list[Sequence]:
        return [seq for seq in self.seqs if not seq.finished]

    @property
    def leader(self) -> Sequence:
        """The first unfinished sequence: the one that a recomputed group is rebuilt from."""
        return self.unfinished[0]

    @property
    def schedulable(self) -> list[Sequence]:
        """The unfinished sequences that can be computed now: the leader and attached siblings."""
        leader = self.leader
        return [seq for seq in self.unfinished if seq is leader or seq.attached]

    @property
    def best(self) -> list[Sequence]:
        """What the request returns: its n most probable samples, or all in order if n is all.

        Hypotheses of beam search are in order of their scores already.
        """
        if self.beam_search:
            return self.seqs[: self.params.n]
        if self.num_samples == self.params.n:
            return list(self.seqs)
        return sorted(self.seqs, key=lambda seq: -sum(seq.logprobs))[: self.params.n]

    def start_next_part(self) -> bool:
        """Begin with the next samples, at the prompt; False if all of them have been begun."""
        first_sample = self.first_sample + self.num_samples_now
        if first_sample == self.num_samples:
            return False
        self.first_sample, self.forked = first_sample, False
        self.seqs.append(self._new_sequence(first_sample))
        return True

    def _new_sequence(self, index: int) -> Sequence:
        seq = Sequence(list(self.prompt_token_ids), self.prompt_len, index)
        if getattr(self.params, "logprobs", None) is not None:
            seq.distributions = []
        return seq

    def set_status(self, status: SequenceStatus) -> None:
        for seq in self.unfinished:
            seq.status = status


def longest_output(group: SequenceGroup, max_model_len: int) -> int:
    """The most tokens that an output of this group can have."""
    room = max_model_len - group.prompt_len
    return room if group.params.max_tokens is None else min(room, group.params.max_tokens)


def finish_reason(
    seq: Sequence, group: SequenceGroup, max_model_len: int
) -> tuple[FinishReason, int | None] | None:
    """Does its newest token end this sequence? (finish reason, stop reason), or None: go on."""
    return reason_to_end(seq.token_ids[-1], seq.output_len, group, max_model_len)


def reason_to_end(
    token_id: int, output_len: int, group: SequenceGroup, max_model_len: int
) -> tuple[FinishReason, int | None] | None:
    """As `finish_reason`, of an output whose last token, number `output_len`, this is or would be.

    End of sequence comes first, then stop tokens, both from min_tokens on; then the lengths. So an
    output that ends by itself with the last token it may have has stopped: it was not cut short.
    """
    params = group.params
    if output_len >= params.min_tokens:
        if token_id in group.eos_token_ids and not params.ignore_eos:
            return "stop", None
        if token_id in (params.stop_token_ids or ()):
            return "stop", token_id
    if group.prompt_len + output_len == max_model_len or output_len == params.max_tokens:
        return "length", None
    return None
