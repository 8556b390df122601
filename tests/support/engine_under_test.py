"""What tests ask of an engine, whichever it is: requests as plain data, four calls, a look inside.

A property that is written against `EngineUnderTest` can be asked of any engine that is put behind
it: `in_process.py` has `LLMEngine` and its loop, `through_messages.py` the link between processes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from jax_engine import SamplingParams, StructuredOutputsParams
from jax_engine.engine.stats import Metric
from reference.parameters import Parameters, parameters
from reference.thinking import Thinking
from tests.support.integrity import BlocksState, TableState, check_blocks_state
from tests.support.invariants import check_queues
from tests.support.some_embeds import some_embeds


@dataclass(frozen=True)
class Limits:
    """Limits of the tokens that may be drawn which `reference.parameters` cannot express.

    Attributes:
        structured_outputs: The engine's word for what `guide` says to the oracle: which tokens may
            follow an output.
        thinking: The oracle's rule of `thinking_token_budget`.
    """

    logits_processors: Sequence[Callable[..., Any]] = ()
    bad_words_token_ids: Sequence[Sequence[int]] = ()
    structured_outputs: StructuredOutputsParams | None = None
    guide: Callable[[list[int]], set[int]] | None = None
    thinking: Thinking | None = None


@dataclass(frozen=True, kw_only=True)
class LimitedParameters(Parameters):
    """The oracle's parameters, with what it reads of `Limits`."""

    logits_processors: Sequence[Callable[..., Any]]
    bad_words_token_ids: Sequence[Sequence[int]]
    guide: Callable[[list[int]], set[int]] | None
    thinking: Thinking | None


@dataclass(frozen=True)
class Request:
    """One request of a workload.

    Attributes:
        given: Arguments of `SamplingParams`. The oracle makes its own parameters of them.
        step: When it is added.
        timeout: Seconds after its arrival; a step takes one.
        after: The place in the workload of the request whose end it waits for instead; its prompt
            then follows on that one's prompt and first output.
        prediction: Tokens that its output is expected to have; the oracle knows of none.
        adapter: The number of `some_adapter` that it is computed with.
        embeds: The number of `some_embeds` that stand in place of its prompt, which is zeros then.
    """

    request_id: str
    prompt: list[int]
    given: Mapping[str, Any]
    step: int = 0
    arrival_time: float = 0.0
    priority: int = 0
    cache_salt: str | None = None
    timeout: float | None = None
    after: int | None = None
    limits: Limits | None = None
    prediction: Sequence[int] = ()
    adapter: int | None = None
    embeds: int | None = None

    def prompt_embeds(self) -> np.ndarray | None:
        """The prompt; None: it is of tokens."""
        return None if self.embeds is None else some_embeds(self.embeds, len(self.prompt))

    def sampling_params(self) -> SamplingParams:
        """The engine's parameters. Raises InvalidRequestError."""
        given = deepcopy(dict(self.given))
        if self.limits is None:
            return SamplingParams(**given)
        params = SamplingParams(
            logits_processors=list(self.limits.logits_processors) or None,
            structured_outputs=self.limits.structured_outputs,
            **given,
        )
        words = self.limits.bad_words_token_ids
        params.bad_words_token_ids = words  # type: ignore[attr-defined]  # there is no tokenizer
        return params

    def parameters(self) -> Parameters:
        """The oracle's. Raises BadParameters."""
        own, limits = parameters(**self.given), self.limits
        if limits is None:
            return own
        return LimitedParameters(
            **vars(own),
            logits_processors=limits.logits_processors,
            bad_words_token_ids=limits.bad_words_token_ids,
            guide=limits.guide,
            thinking=limits.thinking,
        )


@dataclass(frozen=True)
class SequenceState:
    """One sequence of a group."""

    seq_id: int
    index: int
    token_ids: list[int]
    num_computed_tokens: int
    status: Any
    finish_reason: str | None


@dataclass(frozen=True)
class GroupState:
    """One unfinished request.

    Attributes:
        number: Its name between controller and runner.
        key: By which queues are sorted.
        adapter: That of its request, if it has one.
    """

    request_id: str
    number: int
    key: Any
    params: Any
    part_size: int
    forked: bool
    seqs: list[SequenceState]
    adapter: Any = None


@dataclass(frozen=True)
class DebugState:
    """What an engine tells of its inside between two steps.

    Attributes:
        waiting, running, swapped: The queues.
        kept: All that it keeps of any request, by the name of the place.
        stats: Its gauges and counters, an `EngineStats`.
    """

    max_num_seqs: int
    waiting: list[GroupState]
    running: list[GroupState]
    swapped: list[GroupState]
    blocks: BlocksState
    stats: Any
    kept: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def groups(self) -> dict[str, GroupState]:
        """All unfinished requests, by their ids."""
        return {one.request_id: one for one in (*self.waiting, *self.running, *self.swapped)}

    def computed(self) -> Iterator[tuple[TableState, list[int], Any]]:
        """Where keys and values of unfinished sequences lie, of which tokens, and which adapter."""
        for group in (*self.running, *self.swapped):
            for seq in group.seqs:
                tokens = seq.token_ids[: seq.num_computed_tokens]
                if seq.finish_reason is None and tokens and seq.seq_id in self.blocks.tables:
                    yield self.blocks.tables[seq.seq_id], tokens, group.adapter

    def check(self) -> None:
        """I1 to I5, I16 to I18 for the queues and tables; I51 for the gauges."""
        check_blocks_state(self.blocks)
        check_queues(self, self.blocks, lambda group: group.key, self.max_num_seqs)
        stats = self.stats
        queues = self.waiting, self.running, self.swapped
        gauges = stats.num_waiting, stats.num_running, stats.num_swapped
        assert gauges == tuple(map(len, queues)), "I51"
        for place in ("groups", "requests"):
            assert set(self.kept[place]) == self.groups.keys(), "I16"
        assert stats.num_used_blocks + stats.num_free_blocks == stats.num_blocks
        assert stats.peak_used_blocks <= stats.num_blocks

    def check_idle(self) -> None:
        """I9: nothing is left of anybody."""
        self.check()
        left = {name: kept for name, kept in self.kept.items() if kept}
        assert not left and not self.groups, f"I9: {left}"
        assert not self.blocks.tables and self.stats.num_used_blocks == 0, "I9"
        assert not any(any(pool.refs) for pool in self.blocks.pools.values()), "I9"


class EngineUnderTest(Protocol):
    """
    Attributes:
        clock: Where its time comes from, in seconds; a test may set it.
    """

    clock: Callable[[], float]

    def add(self, request: Request) -> None:
        """Raises ValueError if the request is refused: then nothing of it is left."""

    def abort(self, request_ids: Sequence[str]) -> list[Any]:
        """Ends those of them that run; returns last outputs that do not come from `step`."""

    def step(self) -> list[Any]:
        """The new outputs, behind a step if any request runs."""

    def is_busy(self) -> bool:
        """Whether `step` has anything to do, or outputs to return."""

    def debug_state(self) -> DebugState | None:
        """None: it tells nothing, and what reads it is not asked of this engine."""

    def get_metrics(self) -> list[Metric]:
        """Its counts under vLLM's names, where it has a `debug_state`."""
