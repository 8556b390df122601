"""§4.4-4.5, sequence groups: what the scheduler moves between its queues.

A group is one request: one sequence until the prompt is computed, then `best_of` samples or beams
that share it. Its unfinished sequences have one status: they are scheduled and preempted together.
A request for more samples than can run at once is split into parts that run one after the other.
"""

import sys
from collections.abc import Collection, Iterable
from collections.abc import Sequence as SequenceOf
from typing import Protocol

import numpy as np
from jaxtyping import Float

from jax_engine.core.adapter_slots import NO_ADAPTER
from jax_engine.core.beam_search import BeamSearch
from jax_engine.core.prefix_cache import EmbedsSalt, PromptSalt, Salt, salt_parts
from jax_engine.core.sequence import SamplingLimits, Sequence, SequenceStatus, StopRule
from jax_engine.lora.adapter import Adapter

NEVER = sys.maxsize


class Constraints(Protocol):
    """What restricts a request's tokens beyond its sampling parameters."""

    @property
    def needs_last_token(self) -> bool:
        """Whether the tokens allowed next depend on the token before."""

    @property
    def num_free(self) -> int:
        """How many tokens of an output come before the first that is restricted."""


class Prediction(Protocol):
    """What a request's answers are expected to say (`jax_engine.speculation.predicted_text`)."""

    def guesses(self, seq: Sequence, most: int) -> SequenceOf[int]:
        """What it says that follows."""

    def learn(self, seq: Sequence, drafts: SequenceOf[int], known: int) -> None:
        """Counts the right guesses of a step."""

    def counts(self, seqs: Iterable[Sequence]) -> tuple[int, int]:
        """Its tokens that were guessed rightly, and those that were not said."""


class SequenceGroup:
    """One request and its sequences.

    Args:
        request_id: Unique among unfinished requests.
        prompt_token_ids: At least one.
        params: The request's sampling parameters.
        eos_token_ids: Tokens that end a sequence unless `params.ignore_eos`.
        arrival_time: Seconds; earlier is served first.
        priority: Smaller is served first, under the priority policy.
        cache_salt: Requests of different salts share no cached prefix, nor do those of different
            adapters: where there is one, the attribute has its digest, too.
        constraints: What restricts its tokens beyond `params`; applied by the engine.
        max_drafts: The most drafts of one of its sequences in a step.
        prediction: What its answers are expected to say, from which drafts are made.
        adapter: The LoRA adapter that it is computed with; None: the model alone.
        prompt_embeds: What the first layer reads of the prompt, whose ids are zeros then; None: the
            vectors of its tokens.

    Attributes:
        seqs: The sequences of all parts so far, finished ones included. A part has one sequence
            until `forked`, then `part_size`. In a beam search: the running beams, best first; at
            the end, the hypotheses.
        part_size: Samples that run at a time; the last part has the rest. Set by the scheduler.
        part_start: Index in `seqs` of the current part's first sequence.
        num_left: Samples of later parts.
        beam: The state of a beam search; None for other requests.
        num_samples: k, the sequences to sample or the beams: `best_of`, else `n`.
        samples_per_seq: Tokens to sample per sequence and step: the part's samples for a prompt
            that is about to fork, else 1. A beam search forks by candidates, so it is always 1.
        reserved: Sequences it counts against max_num_seqs: the part's samples; once forked, the
            unfinished ones; always k in a beam search.
        num_unattached: Unfinished sequences that wait for the leader (see `Sequence.attached`).
        num_preemptions: How often it was preempted.
        num_cached_tokens: Prompt tokens found in the prefix cache, or a store, when first admitted.
        num_loaded_tokens: Those of them that a store had.
        reads_cache: Whether its prompt may come from the prefix cache. False if each prompt token
            has an output of its own (`prompt_logprobs`, pooling).
        has_embeds: Whether its prompt is given as embeddings.
        needs_history: Whether the worker needs all its tokens to sample.
        needs_last_token: Whether the tokens allowed next depend on the values of earlier ones, so
            that no step can be planned ahead of one that samples for it.
        num_free: The first tokens of each output, this many, are not restricted; NEVER: none is
            any more. The engine sets it.
        adapter_slot: Where its adapter lies while it runs; 0 without one, and while it waits.
        number: Its name between controller and worker (`RequestSetup.number`); set by the engine.
        key: Sort key in every queue; set by the scheduler.
        stop: When its sequences end; set by the scheduler.
    """

    __slots__ = (
        "adapter", "adapter_slot", "arrival_time", "beam", "cache_salt", "constraints",
        "eos_token_ids", "forked", "has_embeds", "key", "max_drafts", "needs_history",
        "needs_last_token",
        "num_cached_tokens", "num_free", "num_left", "num_loaded_tokens",
        "num_preemptions", "num_samples", "num_unattached", "number", "params", "part_size",
        "part_start", "prediction", "priority", "prompt_len", "reads_cache", "request_id",
        "reserved", "samples_per_seq", "seqs", "stop",
    )  # fmt: skip

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: SequenceOf[int],
        params: SamplingLimits,
        eos_token_ids: Collection[int] = (),
        arrival_time: float = 0.0,
        priority: int = 0,
        cache_salt: str | None = None,
        constraints: Constraints | None = None,
        max_drafts: int = 0,
        prediction: Prediction | None = None,
        adapter: Adapter | None = None,
        prompt_embeds: Float[np.ndarray, "n E"] | None = None,
    ) -> None:
        self.request_id = request_id
        self.prompt_len = len(prompt_token_ids)
        self.seqs = [Sequence(0, list(prompt_token_ids), self.prompt_len)]
        self.params = params
        self.eos_token_ids = eos_token_ids
        self.arrival_time = arrival_time
        self.priority = priority
        digest = None if adapter is None else adapter.digest
        self.cache_salt: PromptSalt = cache_salt if digest is None else (digest, cache_salt)
        if prompt_embeds is not None:
            self.cache_salt = EmbedsSalt(prompt_embeds, digest, cache_salt)
        self.has_embeds = prompt_embeds is not None
        self.adapter, self.adapter_slot = adapter, NO_ADAPTER
        self.num_samples = params.best_of or params.n
        self.beam = BeamSearch.for_request(params, eos_token_ids)
        self.samples_per_seq = self.num_samples if self.beam is None else 1
        self.reserved = self.num_samples
        self.part_size = self.num_samples
        self.part_start = self.num_left = 0
        self.forked = False
        self.num_unattached = self.num_preemptions = 0
        self.num_cached_tokens: int | None = None
        self.num_loaded_tokens = 0
        self.reads_cache = not params.wants_prompt
        self.needs_history = params.has_penalties
        self.constraints = constraints
        self.max_drafts, self.prediction = max_drafts, prediction
        self.needs_last_token = constraints is not None and constraints.needs_last_token
        self.num_free = 0 if constraints is None else constraints.num_free
        self.number = 0
        self.key: tuple[float, ...]
        self.stop: StopRule

    @property
    def own_salt(self) -> str | None:
        """The salt that the request was given."""
        salt = self.cache_salt
        return salt.own if isinstance(salt, EmbedsSalt) else salt_parts(salt)[1]

    @property
    def prompt_salt(self) -> Salt:
        """What tells its prompt from others of the same tokens, in a value that can be hashed."""
        salt = self.cache_salt
        return salt.of_block(0, self.prompt_len) if isinstance(salt, EmbedsSalt) else salt

    @property
    def prompt_token_ids(self) -> list[int]:
        return self.seqs[0].token_ids[: self.prompt_len]

    @property
    def part(self) -> list[Sequence]:
        """The sequences of the current part; those of earlier parts have finished."""
        return self.seqs[self.part_start :]

    def limit_parts(self, part_size: int) -> None:
        """Splits the samples into parts of this size. Call before scheduling; not for beams."""
        self.part_size = self.samples_per_seq = self.reserved = part_size
        self.num_left = self.num_samples - part_size

    def start_next_part(self) -> None:
        """Appends a sequence that holds the prompt: the next part forks from it."""
        first = self.num_samples - self.num_left
        self.samples_per_seq = self.reserved = min(self.part_size, self.num_left)
        self.num_left -= self.reserved
        self.part_start = len(self.seqs)
        self.seqs.append(Sequence(first, self.prompt_token_ids, self.prompt_len))
        self.forked = False

    @property
    def finished(self) -> bool:
        return all([seq.finish_reason is not None for seq in self.part])

    @property
    def leader(self) -> Sequence:
        """The first unfinished sequence; after a preemption it recomputes the shared prompt."""
        return next(seq for seq in self.part if seq.finish_reason is None)

    def unfinished(self) -> list[Sequence]:
        return [seq for seq in self.part if seq.finish_reason is None]

    @property
    def in_flight(self) -> bool:
        """Whether a sequence waits for a token of a step that was not collected."""
        return any([seq.in_flight for seq in self.unfinished()])

    def attached(self) -> list[Sequence]:
        """The unfinished sequences that may be scheduled now."""
        if len(self.seqs) == 1:
            return self.seqs
        return [seq for seq in self.part if seq.finish_reason is None and seq.attached]

    def decoding(self) -> list[Sequence]:
        """The unfinished sequences, except beams that have candidates and wait for the others."""
        return [seq for seq in self.part if seq.finish_reason is None and seq.candidates is None]

    def set_status(self, status: SequenceStatus) -> None:
        """Sets the status that all unfinished sequences of the group share."""
        for seq in self.part:
            if seq.finish_reason is None:
                seq.status = status
