"""Two runners that are asked the same, and a little controller that asks anything it may.

The controller here has no scheduler: it chooses at random among all that the rules of `Runner`
allow, so the engine's own controller may change without leaving what is tested.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from jax_engine import SamplingParams
from jax_engine.engine.running_requests import request_setup
from jax_engine.sampling.masked_steps import num_words
from jax_engine.step import (
    Capabilities,
    Moves,
    RequestSetup,
    Row,
    SampleLogprobs,
    Samples,
    Step,
    StepResult,
)
from reference.random_numbers import uniform
from reference.sampling import GREEDY_BELOW, distribution, edit_logits
from tests.support.engine_pair import LOGPROB_TOLERANCE, TOLERANCE
from tests.support.stub_runner import StubRunner, Ticket, unpacked

MOST_ROWS, MOST_TOKENS = 4, 32
MOST_ALONG = 6  # tokens of a step up to which more samples may be drawn along its rows


class Rounding(Exception):
    """The two drew different tokens where rounding may decide: from here on they differ."""


class RunnerPair:
    """Asks both, and demands the same answers or the same refusal.

    Args:
        wrap: What stands in front of either.
    """

    def __init__(
        self, stub: StubRunner, real: Any, wrap: Callable[[Any], Any] = lambda runner: runner
    ) -> None:
        self.stub, self.real = stub, real
        self._runners = wrap(stub), wrap(real)
        self.capabilities: Capabilities = self._runners[1].capabilities
        assert self._runners[0].capabilities == self.capabilities

    def launch(self, step: Step) -> tuple[Any, Any, Ticket]:
        found, real = self._both("launch", step)
        for one in (self.stub, self.real):
            assert self.stub.setups.keys() == one.setups.keys()
        own = found if isinstance(found, Ticket) else self._runners[0]._tickets[found]
        return found, real, own

    def logits(self, ticket: tuple[Any, Any, Ticket]) -> np.ndarray:
        stub, real = self._each("logits", ticket)
        np.testing.assert_allclose(real, stub, atol=TOLERANCE)
        return np.array(real)

    def sample(
        self, ticket: tuple[Any, Any, Ticket], allowed: Any, processed: np.ndarray | None
    ) -> None:
        self._each("sample", ticket, allowed, processed)

    def collect(self, ticket: tuple[Any, Any, Ticket]) -> list[int]:
        stub, real = self._each("collect", ticket)
        return same_results(ticket[2], stub, real)

    def ask(self, name: str, *given: Any) -> Any:
        stub, real = self._both(name, *given)
        return stub, real

    def refuse(self, name: str, *given: Any, kind: type[Exception]) -> None:
        """Both raise this."""
        for i, runner in enumerate(self._runners):
            own = [one[i] if isinstance(one, tuple) and len(one) == 3 else one for one in given]
            try:
                getattr(runner, name)(*own)
            except kind:
                continue
            raise AssertionError(f"{runner} did not refuse {name}")

    def _both(self, name: str, *given: Any) -> tuple[Any, Any]:
        first, second = (getattr(one, name)(*given) for one in self._runners)
        return first, second

    def _each(self, name: str, ticket: tuple[Any, Any, Ticket], *given: Any) -> tuple[Any, Any]:
        pairs = zip(self._runners, ticket[:2], strict=True)
        first, second = (getattr(runner, name)(own, *given) for runner, own in pairs)
        return first, second


def same_results(ticket: Ticket, stub: StepResult, real: StepResult) -> list[int]:
    """The tokens, if all that a controller may read is the same.

    Behind what a step asks for, arrays may have more rows and columns.
    """
    rows, setups = ticket.step.rows, ticket.setups
    for name in ("logprobs", "prompt", "hidden", "logits"):
        assert (getattr(stub, name) is None) == (getattr(real, name) is None), name
    assert len(stub.token_ids) == len(real.token_ids) == len(ticket.step.samples)
    assert all(type(token) is int for token in stub.token_ids + real.token_ids)
    samples = list(ticket.samples())
    beams = [bool(unpacked(setup, 0).use_beam_search) for setup, _, _ in samples]
    if stub.logits is not None and real.logits is not None:
        assert real.logits.shape == stub.logits.shape
        np.testing.assert_allclose(real.logits, stub.logits, atol=TOLERANCE)
    if stub.hidden is not None and real.hidden is not None:
        for name in ("total", "last", "tokens"):
            one, other = getattr(stub.hidden, name), getattr(real.hidden, name)
            assert (one is None) == (other is None)
            if one is not None:
                np.testing.assert_allclose(other[: len(one)], one, rtol=1e-4, atol=1e-3)
    if stub.prompt is not None and real.prompt is not None:
        asked = [
            setup.prompt_logprobs is not None and at < len(setup.prompt_token_ids)
            for row, setup in zip(rows, setups, strict=True)
            for at in range(row.start + 1, row.end + 1)
        ]
        counts = [setup.prompt_logprobs for setup in setups if setup.prompt_logprobs is not None]
        least = ticket.logits.shape[1] if min(counts) < 0 else max(counts)
        assert real.prompt.top_logprobs.shape[1] >= least
        _same_logprobs(stub.prompt, real.prompt, [i for i, one in enumerate(asked) if one])
    for i, (setup, index, history) in enumerate(samples):
        pair = stub.token_ids[i], real.token_ids[i]
        if not beams[i] and pair[0] != pair[1]:
            _may_be_rounding(setup, index, ticket.drawn_from[i], history, pair)
            raise Rounding
    if stub.logprobs is not None and real.logprobs is not None:
        assert len(real.logprobs.logprobs) == len(samples)
        wanted = [
            i for i, (setup, _, _) in enumerate(samples) if setup.wants_logprobs and not beams[i]
        ]
        _same_logprobs(stub.logprobs, real.logprobs, wanted)
        for i in np.flatnonzero(beams):
            best = stub.logprobs.top_logprobs[i, :2]
            found = real.logprobs.top_logprobs[i, :2]
            np.testing.assert_allclose(found, best, atol=LOGPROB_TOLERANCE)
    return real.token_ids


def _same_logprobs(stub: SampleLogprobs, real: SampleLogprobs, rows: list[int]) -> None:
    for i in rows:
        value, every = stub.logprobs[i], stub.top_logprobs[i]  # the stub has the whole vocabulary
        assert abs(real.logprobs[i] - value) < LOGPROB_TOLERANCE
        more = (every > value + LOGPROB_TOLERANCE).sum()
        fewer = (every > value - LOGPROB_TOLERANCE).sum()
        assert 1 + more <= real.ranks[i] <= 1 + fewer
        width = min(len(every), real.top_logprobs.shape[1])
        tolerance = {"atol": LOGPROB_TOLERANCE}
        np.testing.assert_allclose(real.top_logprobs[i, :width], every[:width], **tolerance)
        own = {int(token): row for row, token in enumerate(stub.top_token_ids[i])}
        found = [every[own[int(token)]] for token in real.top_token_ids[i, :width]]
        np.testing.assert_allclose(found, every[:width], **tolerance)


def _may_be_rounding(
    setup: RequestSetup, index: int, logits: np.ndarray, history: list[int], pair: tuple[int, int]
) -> None:
    params, length = unpacked(setup, index), len(history)
    context: dict[str, Any] = {
        "prompt_token_ids": setup.prompt_token_ids[: len(history)],
        "output_token_ids": history[len(setup.prompt_token_ids) :],
    }
    if params.temperature < GREEDY_BELOW:
        edited = edit_logits(logits, params, **context)
        margin = abs(float(edited[pair[0]] - edited[pair[1]]))
    else:
        edges = np.cumsum(distribution(logits, params, **context))
        margin = float(np.abs(edges - uniform(params.seed, length)).min())
    assert margin < TOLERANCE, f"the stub draws {pair[0]}, the worker {pair[1]}, margin {margin}"


@dataclass(eq=False)
class Sequence:
    """A sequence of the little controller's.

    Attributes:
        tokens: As far as they are known.
        pending: The step that has drawn the next one, and its place there.
        computed: How many positions are in the cache.
    """

    setup: RequestSetup
    index: int
    tokens: list[int]
    table: list[int]
    pending: tuple[int, int] | None = None
    computed: int = 0
    swapped: bool = False


@dataclass
class Clerk:
    """Makes steps, and keeps book of blocks.

    Args:
        pair: What carries them out.
        kind: What is special about the requests.
        params: Draws the parameters of one.
    """

    pair: RunnerPair
    chance: Random
    kind: str
    params: Callable[[Random], SamplingParams]
    running: list[Sequence] = field(default_factory=list)
    opened: list[RequestSetup] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    flights: list[tuple[int, Any, list[Sequence | None]]] = field(default_factory=list)
    num_steps: int = 0
    num_requests: int = 0

    def __post_init__(self) -> None:
        sizes = self.pair.capabilities
        self.free = [*range(sizes.num_blocks)], [*range(sizes.num_cpu_blocks)]
        self.free[1][12:] = []
        self.copies: list[tuple[int, int]] = []
        self.last_draw = -1
        self.pair.ask("recover")

    def step(self) -> None:
        """One step, and what is left of the one before is collected behind it, or never."""
        if self.chance.random() < 0.5 or not self.running:
            self._open()
        if self.chance.random() < 0.1:
            self._close(self.chance.choice(self.running))
        moves, self.copies = Moves(*self._swap(), self.copies), []
        rows, samples, drawing = self._rows()
        self.num_steps += 1
        masked = self.kind == "masked" and bool(rows) and self.chance.random() < 0.6
        tables = np.zeros((len(rows), self.pair.capabilities.table_width), np.int32)
        for i, (seq, _) in enumerate(rows):
            tables[i, : len(seq.table)] = seq.table
        step = Step(
            [row for _, row in rows], samples, tables, moves, self.opened, self.closed, masked
        )
        self.opened, self.closed = [], []
        ticket = self.pair.launch(step)
        if masked:
            self._sample(ticket)
        if self.flights:
            self._collect()
        for place, seq in enumerate(drawing):
            if seq is not None:
                seq.pending = self.num_steps, place
        if drawing:
            self.last_draw = self.num_steps
        self.flights.append((self.num_steps, ticket, drawing))
        if self.chance.random() < 0.5:
            self._collect()

    def fail(self) -> None:
        """After a failure everything is gone; who was running is unknown."""
        self.pair.ask("recover")
        if self.running:
            seq = self.running[0]
            row = Row(0, seq.setup.number, 0, seq.tokens[:1])
            tables = np.zeros((1, self.pair.capabilities.table_width), np.int32)
            step = Step([row], Samples([], []), tables, Moves([], [], []), [], [])
            self.pair.refuse("launch", step, kind=KeyError)
        self.running, self.opened, self.closed, self.flights = [], [], [], []
        self.__post_init__()

    def _open(self) -> None:
        if len(self.running) >= MOST_ROWS or len(self.free[0]) < 6:
            return
        vocab_size = self.pair.capabilities.vocab_size
        prompt = [self.chance.randrange(vocab_size) for _ in range(self.chance.randint(1, 9))]
        params, seed = self.params(self.chance), self.chance.getrandbits(62)
        setup = request_setup(self.num_requests, prompt, params, seed, frozenset([2]))
        self.num_requests += 1
        self.opened.append(setup)
        self.running.append(Sequence(setup, 0, list(prompt), []))

    def _close(self, seq: Sequence) -> None:
        """Closes all sequences of its request, whatever is on its way."""
        setup = seq.setup
        family = [one for one in self.running if one.setup is setup]
        self.running = [one for one in self.running if one.setup is not setup]
        kept = [one for one in self.opened if one is not setup]
        if len(kept) == len(self.opened):
            self.closed.append(setup.number)
        self.opened = kept
        blocks = {block for one in family for block in one.table}
        gone = {target for _, target in self.copies} & blocks
        self.copies = [pair for pair in self.copies if pair[1] not in gone]
        self.free[seq.swapped].extend(sorted(blocks))

    def _swap(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """One request out or in, with all that it shares."""
        swaps: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
        if not self.running or self.copies or self.chance.random() < 0.7:
            return swaps
        seq = self.chance.choice(self.running)
        family = [one for one in self.running if one.setup is seq.setup]
        blocks = sorted({block for one in family for block in one.table})
        here, there = self.free[seq.swapped], self.free[not seq.swapped]
        if len(there) < len(blocks) + 4 * seq.swapped:
            return swaps
        moved = {block: there.pop() for block in blocks}
        if not seq.swapped:
            assert self.pair.ask("host_room", list(moved.values())) == (True, True)
        swaps[not seq.swapped].extend(moved.items())
        here.extend(blocks)
        for one in family:
            one.table = [moved[block] for block in one.table]
            one.swapped = not one.swapped
        return swaps

    def _rows(self) -> tuple[list[tuple[Sequence, Row]], Samples, list[Sequence | None]]:
        """Chunks of prompts and decodes; samples; and whose token each draw is, if anybody's."""
        rows, room = [], MOST_TOKENS
        samples, drawing = Samples([], []), list[Sequence | None]()
        for seq in self.chance.sample(self.running, len(self.running)):
            tokens = self._tokens(seq, room)
            if not tokens or self.chance.random() < 0.2 or len(rows) == MOST_ROWS:
                continue
            start, end = seq.computed, seq.computed + len(tokens)
            size = self.pair.capabilities.block_size
            if len(self.free[0]) < -(-end // size) - len(seq.table) + len(seq.setup.rows):
                continue
            room -= len(tokens)
            while len(seq.table) * size < end:
                seq.table.append(self.free[0].pop())
            whole = [*seq.tokens[:start], *tokens]
            ends = end == len(seq.tokens) + (tokens[-1] < 0)
            count = self._num_samples(seq, end) if ends else 0
            first = MOST_TOKENS - room - len(tokens)
            inner = [
                first + at
                for at in range(len(tokens) - 1)
                if len(samples) + at < MOST_ALONG and self.chance.random() < 0.3
            ]
            samples.tokens.extend(inner)
            samples.indices.extend(self.chance.randrange(len(seq.setup.rows)) for _ in inner)
            drawing += [None] * len(inner)
            history = whole if seq.setup.has_penalties and (count or inner) else None
            number = seq.setup.number
            rows.append((seq, Row(number, number, start, tokens, history)))
            seq.computed = end
            for index in range(seq.index, seq.index + count):
                samples.tokens.append(first + len(tokens) - 1)
                samples.indices.append(index)
                drawing.append(seq if index == seq.index else self._fork(seq, index))
        return rows, samples, drawing

    def _tokens(self, seq: Sequence, room: int) -> list[int]:
        """The tokens that may be computed next."""
        if seq.swapped or len(seq.tokens) > 20:
            return []
        tokens = seq.tokens[seq.computed :]
        if tokens:
            return tokens[: min(self.chance.randint(1, len(tokens)), room)]
        step, place = seq.pending or (-1, 0)
        if step != self.last_draw or step < 0 or not room or self.kind == "beams":
            return []  # what beams draw is a choice of the controller's
        return [-(place + 1)]

    def _num_samples(self, seq: Sequence, end: int) -> int:
        return len(seq.setup.rows) if end == len(seq.setup.prompt_token_ids) else 1

    def _fork(self, seq: Sequence, index: int) -> Sequence:
        """Shares full blocks; of the last one it gets a copy before the next step."""
        size = self.pair.capabilities.block_size
        fork = Sequence(seq.setup, index, list(seq.tokens), list(seq.table))
        fork.computed = seq.computed
        if seq.computed % size:
            fork.table[-1] = self.free[0].pop()
            self.copies.append((seq.table[-1], fork.table[-1]))
        self.running.append(fork)
        return fork

    def _sample(self, ticket: Any) -> None:
        own, processed, allowed = ticket[2], None, None
        if self.chance.random() < 0.5:
            processed = self.pair.logits(ticket)
            noise = [self.chance.uniform(-1, 1) for _ in range(processed.size)]
            processed = (processed + np.reshape(noise, processed.shape)).astype(np.float32)
        if processed is None or self.chance.random() < 0.7:
            words = num_words(self.pair.capabilities.vocab_size)
            bits = [self.chance.getrandbits(32) | 1 << 7 for _ in range(len(own.logits) * words)]
            allowed = np.array(bits, np.uint32).reshape(len(own.logits), words)
        self.pair.sample(ticket, allowed, processed)

    def _collect(self) -> None:
        """The oldest, unless nobody needs it."""
        number, ticket, drawing = self.flights.pop(0)
        if self.chance.random() < 0.2 and not any(seq in self.running for seq in drawing):
            return
        for place, (seq, token) in enumerate(zip(drawing, self.pair.collect(ticket), strict=True)):
            if seq is None:
                continue
            if seq.pending == (number, place):
                seq.pending = None
            seq.tokens.append(token)
