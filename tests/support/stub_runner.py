"""The stub of `jax_engine.step.Runner`: no device, and any model that has the oracle's methods.

Its KV cache and its sampler are the oracle's, its swap space is the engine's own, whose memory may
run out. Nothing is compiled and nothing is rounded, but for float32 in what it returns. With
`ReadingModel` what a sequence gets next is a hash of what its block table leads to, so a wrong
block, copy or swap shows in the tokens; the simulation has a model that checks each position.

It is stricter than a device: it raises where a controller breaks a rule of `Runner`, and holds
not-a-number where nobody wrote. `tests/properties/test_runner_pair.py` holds it to the `Worker`.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from jax_engine.lora.adapter import Adapter
from jax_engine.sampling.masked_steps import as_booleans
from jax_engine.sampling.sampling_inputs import FLOATS, WANTS_PROCESSED, row_fields
from jax_engine.step import (
    Capabilities,
    HiddenStates,
    PreemptionCosts,
    RequestSetup,
    Row,
    SampleLogprobs,
    Step,
    StepResult,
    Unread,
)
from jax_engine.worker import kv_cache
from reference.kv_cache import BlockPairs, KVCache
from reference.sampling import NoTokenLeft, candidates, log_softmax, sample
from tests.support.reading_model import with_adapter
from tests.support.sometimes import saw

SEED = row_fields()["seed"]
BLOCKS_A_PIECE = 3  # of the swap space: so few that several pieces are made
MOVES = ("swap_in", "swap_out", "copy")  # methods of the cache
COLLECTED_AFTER = {move: f"collect after {move}" for move in MOVES}
# Where a step fails: any step; or one in which blocks move, then or when it is collected.
IN_ANY_STEP = ("launch", "launched", "collect", "collected")
ALONE = "moves without a launch"
WHERE_BLOCKS_MOVE = (*MOVES, *COLLECTED_AFTER.values(), ALONE)
PLACES = IN_ANY_STEP + WHERE_BLOCKS_MOVE

type Drawn = tuple[int, list[tuple[int, float]] | None]
"""A token; of a beam its candidates, too."""
type Draw = Callable[[RequestSetup, int, np.ndarray, list[int], Collection[int]], Drawn]


class DeviceError(RuntimeError):
    """What a device raises that is out of memory."""


class StubCache(KVCache):
    """The oracle's, with the engine's swap space."""

    def __init__(self, num_cpu_blocks: int, **sizes: int) -> None:
        super().__init__(**sizes, dtype=np.float64)
        layers, kinds, _, *block = self.gpu.shape
        shape = (layers, kinds, *block)
        with patch.object(kv_cache, "PIECE_BYTES", BLOCKS_A_PIECE * 8 * prod(shape)):
            self.host = kv_cache.HostBlocks(num_cpu_blocks, shape, self.gpu.dtype)
        self._swapped: set[int] = set()

    def swap_in(self, pairs: BlockPairs) -> None:
        if pairs:
            cpu, gpu = map(list, zip(*pairs, strict=True))
            assert self._swapped.issuperset(cpu), "I41: a host block was read that nobody wrote"
            self.gpu[:, :, gpu] = np.moveaxis(self.host.read(cpu), 0, 2)

    def swap_out(self, pairs: BlockPairs) -> None:
        if pairs:
            gpu, cpu = map(list, zip(*pairs, strict=True))
            self.host.write(cpu, np.moveaxis(self.gpu[:, :, gpu], 2, 0))
            self._swapped.update(cpu)


@dataclass(eq=False)
class Ticket:
    """A step, and what was computed when it was launched.

    Attributes:
        setups, histories: Setups and histories of its rows.
        hidden: [T, E].
        logits: [samples, V], raw.
        drawn_from: The same with the edits of a masked step.
        result: None before a masked step is sampled.
    """

    step: Step
    setups: list[RequestSetup]
    histories: list[list[int]]
    hidden: np.ndarray
    logits: np.ndarray
    drawn_from: np.ndarray
    result: StepResult | None = None

    def samples(self) -> Iterator[tuple[RequestSetup, int, list[int]]]:
        """Each sample's request, its index among that request's words, and the tokens before it."""
        follows = [
            (setup, history[:end])
            for row, setup, history in zip(self.step.rows, self.setups, self.histories, strict=True)
            for end in range(row.start + 1, row.end + 1)
        ]
        samples = self.step.samples
        for token, index in zip(samples.tokens, samples.indices, strict=True):
            setup, history = follows[token]
            yield setup, index if len(setup.rows) > 1 else 0, history  # beams share one


def oracle_draw(
    setup: RequestSetup,
    index: int,
    logits: np.ndarray,
    history: list[int],
    eos_token_ids: Collection[int],
) -> Drawn:
    """What the oracle's sampler draws for sample `index` of a request behind these tokens."""
    params = unpacked(setup, index)
    context: dict[str, Any] = {
        "prompt_token_ids": setup.prompt_token_ids[: len(history)],
        "output_token_ids": history[len(setup.prompt_token_ids) :],
        "eos_token_ids": eos_token_ids,
    }
    if params.use_beam_search:
        return 0, candidates(logits, params, len(logits), **context)
    try:
        return sample(logits, params, seed=params.seed, **context), None
    except NoTokenLeft:  # the controller ends the request
        return 0, None


class StubRunner:
    """See `jax_engine.step.Runner`.

    Args:
        model: Has the methods of `reference.transformer.Transformer` that the engine calls.
        eos_token_ids: For the oracle's `min_tokens`.
        draw: The sampler.
        adapted: Makes the model with an adapter.

    Attributes:
        slots: The digest of the adapter in each slot that has one, and the model with it.
        wanted: The digest that a request wants, by its number, None for none; raises KeyError for
            one that has ended. Tests may set it.
        memory: The cache.
        fail_at: Where a step raises, the first that comes there: one of PLACES; None for nowhere.
        in_flight: Steps that were launched and may be collected.
        setups: What it was told of the requests, by number.
    """

    Error = DeviceError

    def __init__(
        self,
        model: Any,
        capabilities: Capabilities,
        eos_token_ids: Collection[int] = (),
        draw: Draw = oracle_draw,
        adapted: Callable[[Adapter], Any] = with_adapter,
    ) -> None:
        self.capabilities = capabilities
        self.eos_token_ids = eos_token_ids
        self.draw = draw
        self.adapted = adapted
        self.wanted: Callable[[int], str | None] | None = None
        self.fail_at: str | None = None
        self.set_weights(model)
        self.recover()

    def set_weights(self, model: Any) -> None:
        self.model = model

    def recover(self) -> None:
        sizes = self.capabilities
        self.in_flight: list[Ticket] = []
        self.slots: dict[int, tuple[str, Any]] = {}
        self.setups: dict[int, RequestSetup] = {}
        self._last_tokens: list[int] = []
        self.memory: Any = StubCache(
            sizes.num_cpu_blocks,
            num_blocks=sizes.num_blocks,
            block_size=sizes.block_size,
            **self.model.config.cache_sizes(),
        )

    def host_room(self, blocks: list[int]) -> bool:
        return bool(self.memory.host.make_room(blocks))

    def measure_costs(self) -> PreemptionCosts:
        return PreemptionCosts(1.0, 1.0)

    def compile_ahead(
        self, max_num_batched_tokens: int, max_num_seqs: int, *, use_tqdm: bool = True
    ) -> int:
        return 0

    def launch(self, step: Step) -> Ticket:
        if step.unread is not None:
            step = self._read(step, step.unread)._replace(unread=None)
        assert all(one.result is not None for one in self.in_flight), (
            "a masked step was not sampled"
        )
        if step.rows:
            self._may_fail("launch")
        self.setups |= {setup.number: setup for setup in step.opened}
        self._load(step)
        self._move_blocks(step)
        ticket = self._compute(step)
        for number in step.closed:
            self.setups.pop(number, None)
        if step.rows:
            self._may_fail("launched")
            before = max(1, self.capabilities.max_concurrent_batches - 1)
            self.in_flight = [*self.in_flight[-before:], ticket]
            saw("three steps at once", len(self.in_flight) > 2)
        if not step.masked:
            self._draw(ticket, ticket.logits)
        return ticket

    def logits(self, ticket: Ticket) -> np.ndarray:
        assert ticket.step.masked, "no masked step"
        return ticket.logits.astype(np.float32)

    def sample(
        self, ticket: Ticket, allowed: np.ndarray | None, processed: np.ndarray | None
    ) -> None:
        assert ticket.step.masked and ticket.result is None, "no masked step, or sampled before"
        logits = ticket.logits if processed is None else processed
        if allowed is not None:
            masks = [as_booleans(bits, logits.shape[1]) for bits in allowed]
            logits = np.where(np.reshape(masks, logits.shape), logits, -np.inf)
        self._draw(ticket, logits)

    def collect(self, ticket: Ticket) -> StepResult:
        assert ticket.result is not None, "a masked step must be sampled before it is collected"
        if ticket.step.rows and not self.capabilities.accepts_guesses:
            self.in_flight.remove(ticket)
        self._may_fail("collect")
        for move in moves_of(ticket.step):
            self._may_fail(COLLECTED_AFTER[move])
        self._may_fail("collected")
        return ticket.result

    def _read(self, step: Step, unread: Unread) -> Step:
        """The step as it would be, had it been launched when all of these were read."""
        drawn = [token for ticket in unread.drawn for token in ticket.result.token_ids]
        drawn = [token if token < self.capabilities.vocab_size else 0 for token in drawn]

        def known(tokens: list[int]) -> list[int]:
            return [token if token >= 0 else drawn[-1 - token] for token in tokens]

        rows = [row._replace(tokens=known(row.tokens)) for row in step.rows]
        rows = [r._replace(history=known(r.history)) if r.history else r for r in rows]
        if unread.verified is None:
            return step._replace(rows=rows)
        right = right_guesses(unread.verified)
        moves = [right[row] for row in unread.rows]
        if not unread.along:
            assert all(len(row.tokens) == 1 for row in rows), "a row that moves has one token"
            rows = [row._replace(start=row.start + by) for row, by in zip(rows, moves, strict=True)]
            return step._replace(rows=rows)
        row_of = [i for i, row in enumerate(rows) for _ in row.tokens]
        tokens = [token + moves[row_of[token]] for token in step.samples.tokens]
        assert [row_of[token] for token in tokens] == [row_of[i] for i in step.samples.tokens]
        return step._replace(rows=rows, samples=replace(step.samples, tokens=tokens))

    def is_in_flight(self, number: int) -> bool:
        """Whether a step that was launched, and not collected, computes tokens of a request."""
        return any(row.request == number for one in self.in_flight for row in one.step.rows)

    def _load(self, step: Step) -> None:
        """Puts adapters into their slots, and looks whether each row finds its own there."""
        for slot, adapter in step.adapters:
            assert 1 <= slot <= self.capabilities.max_loras, f"I54: there is no slot {slot}"
            saw("an adapter was replaced", slot in self.slots)
            self.slots[slot] = adapter.digest, self.adapted(adapter)
        saw("rows of several adapters", len({row.adapter for row in step.rows} - {0}) > 1)
        for row in step.rows:
            found = self.slots[row.adapter][0] if row.adapter else None
            if self.wanted is not None:
                with suppress(KeyError):
                    assert found == self.wanted(row.request), f"I54: row of request {row.request}"

    def _move_blocks(self, step: Step) -> None:
        moves = moves_of(step)
        saw("copy-on-write", "copy" in moves)
        saw("swap-only step", bool(moves.keys() - {"copy"}) and not step.rows)
        if moves and not step.rows:
            self._may_fail(ALONE)
        for move, pairs in moves.items():
            self._may_fail(move)
            getattr(self.memory, move)(pairs)

    def _may_fail(self, place: str) -> None:
        if self.fail_at == place:
            self.fail_at = None
            self.memory = None  # until `recover`
            saw(f"a step failed: {place}")
            raise DeviceError(f"injected at {place}")

    def _compute(self, step: Step) -> Ticket:
        """Runs the model; all rows write before any of them reads, as in each layer of a model."""
        setups = [self.setups[row.request] for row in step.rows]
        histories = [self._history(row) for row in step.rows]
        hidden, last = np.zeros((0, 1)), step.samples.tokens
        if step.rows:
            hidden = self._forward(step)
        logits = np.zeros((0, self.capabilities.vocab_size))
        if last:
            logits = np.asarray(self.model.compute_logits(hidden[last]))
        return Ticket(step, setups, histories, hidden, logits, logits)

    def _forward(self, step: Step) -> np.ndarray:
        size, spans = self.capabilities.block_size, [range(row.start, row.end) for row in step.rows]
        lengths = [len(span) for span in spans]
        positions, row_of = np.array([*chain(*spans)]), np.repeat(range(len(spans)), lengths)
        slots = np.full(len(positions), -1)  # nowhere, without a cache
        if self.capabilities.num_blocks:
            blocks = step.block_tables[row_of, positions // size]
            slots = blocks * size + positions % size
        tokens = np.array([self._known(token) for row in step.rows for token in row.tokens])
        adapters = np.array([row.adapter for row in step.rows])
        parts: dict[int, np.ndarray] = {}
        for adapter in sorted({*adapters.tolist()}):
            its = np.flatnonzero(adapters == adapter)
            at = np.isin(row_of, its)
            model = self.slots[adapter][1] if adapter else self.model
            rows = model.forward(
                tokens[at],
                positions[at],
                self.memory,
                step.block_tables[its],
                np.array([spans[row].stop for row in its]),
                np.cumsum([0, *(lengths[row] for row in its)]),
                slots[at],
            )
            parts |= zip(np.flatnonzero(at).tolist(), rows, strict=True)
        width = max(map(len, parts.values()))
        hidden = np.full((len(tokens), width), -1, parts[0].dtype)
        for token, row in parts.items():
            hidden[token, : len(row)] = row
        return hidden

    def _known(self, token: int) -> int:
        """A token, or the one that the step before has drawn in its place."""
        if token < 0:
            assert self.capabilities.max_concurrent_batches == 1, "the first stage knows no draws"
        return token if token >= 0 else self._last_tokens[-1 - token]

    def _history(self, row: Row) -> list[int]:
        """All tokens up to the row's end; zeros in their place where no penalty reads them."""
        return [0] * row.end if row.history is None else [*map(self._known, row.history)]

    def _draw(self, ticket: Ticket, logits: np.ndarray) -> None:
        ticket.drawn_from, drawn = logits, list[Drawn]()
        for setup, index, history in ticket.samples():
            one = self.draw(setup, index, logits[len(drawn)], history, self.eos_token_ids)
            drawn.append(one)
        tokens = [token for token, _ in drawn]
        if tokens:
            self._last_tokens = tokens
        ticket.result = StepResult(
            tokens, self._logprobs(ticket, drawn), self._prompt(ticket), _states(ticket)
        )
        draws = any(setup.needs_logits for setup, *_ in ticket.samples())
        wants = any(setup.needs_logits for setup in ticket.setups)
        if draws or (ticket.step.masked and wants):
            ticket.result = replace(ticket.result, logits=ticket.logits.astype(np.float32))

    def _logprobs(self, ticket: Ticket, drawn: list[Drawn]) -> SampleLogprobs | None:
        if not any(setup.wants_logprobs for setup in ticket.setups):
            return None
        raw = [log_softmax(row) for row in ticket.logits]
        return _table([(row, *one) for row, one in zip(raw, drawn, strict=True)])

    def _prompt(self, ticket: Ticket) -> SampleLogprobs | None:
        following, asked = list[int](), False
        for row, setup in zip(ticket.step.rows, ticket.setups, strict=True):
            wanted: list[int] = []
            if setup.prompt_logprobs is not None:
                wanted = setup.prompt_token_ids[row.start + 1 : row.end + 1]
            asked |= bool(wanted)
            following += wanted + [0] * (len(row.tokens) - len(wanted))
        if not asked:
            return None
        logits = np.asarray(self.model.compute_logits(ticket.hidden))
        rows = zip(logits, following, strict=True)
        return _table([(log_softmax(row), token, None) for row, token in rows])


def _states(ticket: Ticket) -> HiddenStates | None:
    if not any(setup.pooling for setup in ticket.setups):
        return None
    hidden = ticket.hidden.astype(np.float32)
    ends = np.cumsum([len(row.tokens) for row in ticket.step.rows])
    total = [part.sum(0) for part in np.split(hidden, ends[:-1])]
    tokens = hidden if any(setup.token_states for setup in ticket.setups) else None
    starts = ends - [len(row.tokens) for row in ticket.step.rows]
    return HiddenStates(np.array(total), hidden[starts], hidden[ends - 1], tokens)


def _table(rows: list[tuple[np.ndarray, int, Any]]) -> SampleLogprobs:
    """A table as the sampler gives it: a row each, the most probable tokens best first."""
    count, width = len(rows), max([0, *(len(row) for row, _, _ in rows)])
    own, ranks = np.zeros(count, np.float32), np.zeros(count, np.int32)
    top = np.zeros((count, width), np.int32)
    values = np.full((count, width), -np.inf, np.float32)
    for i, (row, token, beam) in enumerate(rows):
        own[i], ranks[i] = row[token], 1 + (row > row[token]).sum()
        best = np.argsort(-row, kind="stable")
        pairs = [(one, row[one]) for one in best] if beam is None else beam
        for j, (one, value) in enumerate(pairs):
            top[i, j], values[i, j] = one, value
    return SampleLogprobs(own, ranks, top, values)


def unpacked(setup: RequestSetup, index: int) -> Any:
    """What the oracle's sampler reads of a request's parameters, from the words of one sample."""
    words = {name: setup.rows[index, at] for name, at in row_fields().items()}
    floats = {name: _shortest(words[name].view(np.float32)[0]) for name in FLOATS}
    bias = dict(zip(setup.bias[0].tolist(), setup.bias[1].view(np.float32).tolist(), strict=True))
    return SimpleNamespace(
        **floats,
        seed=seed_of(setup, index),
        top_k=int(words["top_k"][0]),
        use_beam_search=words["want_logprobs"][0] == WANTS_PROCESSED,
        min_tokens=setup.min_tokens,
        stop_token_ids=setup.forbidden[0].tolist(),
        ignore_eos=False,
        logit_bias=bias or None,
    )


def seed_of(setup: RequestSetup, index: int) -> int:
    """The 64 bits of a sample's seed, in two words, the high one first."""
    high, low = setup.rows[index, SEED].astype(np.uint32).tolist()
    return int(high) << 32 | int(low)


def _shortest(value: np.float32) -> float:
    """The number that somebody wrote who got this float32."""
    return float(str(value))


def right_guesses(ticket: Ticket) -> list[int]:
    """For each row of a step, how many of its guesses equal the tokens drawn in their places."""
    assert ticket.result is not None
    drawn: dict[int, int] = {}
    for place, token in zip(ticket.step.samples.tokens, ticket.result.token_ids, strict=True):
        drawn.setdefault(place, token)
    found, at = [], 0
    for row in ticket.step.rows:
        at += len(row.tokens)
        right = 0
        while right < row.num_draft:
            place = at - row.num_draft + right
            if row.tokens[right - row.num_draft] != drawn.get(place - 1):
                break
            right += 1
        found.append(right)
    return found


def moves_of(step: Step) -> dict[str, list[tuple[int, int]]]:
    """Which blocks a step moves, by one of MOVES, in the order of a step."""
    return {move: pairs for move, pairs in zip(MOVES, step.moves, strict=True) if pairs}
