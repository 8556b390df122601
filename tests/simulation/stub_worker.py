"""A worker without a device that checks by itself what it reads: no oracle runs beside it.

It stands where `jax_engine.worker.worker.Worker` stands, behind the same methods; nothing else of
the simulation knows what a step looks like to a worker. A slot of its cache holds the token that
was written there and the token's position. A step reads its whole context through the block table,
fails if a slot holds another position, and draws what follows the tokens that it found. The swap
space is the engine's own, so that the host may run out of memory. There is no sampler and there are
no log-probabilities: `tests/support/reference_worker.py` has both, as the oracle does them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jax_engine.step import RequestSetup, Row, Step, StepResult
from jax_engine.worker import host_blocks
from tests.simulation.model import VOCABULARY, next_token

BLOCKS_A_PIECE = 3  # of the swap space: so few that several pieces are made


def contents(token_ids: list[int], start: int = 0) -> np.ndarray:
    """What the slots of these tokens must hold, of which the first is at position `start`."""
    positions = np.arange(start, start + len(token_ids))
    return positions * VOCABULARY + np.array(token_ids, np.int64) + 1


class StubCache:
    """Has the methods of `KVCache`; a block is B numbers, 0 where nothing was written."""

    def __init__(self, num_blocks: int, num_cpu_blocks: int, block_size: int) -> None:
        self.shape = (1, 2, num_blocks, 1, block_size, 1)
        self.array: Any = np.zeros((num_blocks, block_size), np.int64)
        piece_bytes, host_blocks.PIECE_BYTES = (
            host_blocks.PIECE_BYTES,
            BLOCKS_A_PIECE * 8 * block_size,
        )
        try:
            self.host = host_blocks.HostBlocks(num_cpu_blocks, (block_size,), np.dtype(np.int64))
        finally:
            host_blocks.PIECE_BYTES = piece_bytes

    def recover(self) -> None:
        if self.array is None:
            self.array = np.zeros((self.shape[2], self.shape[4]), np.int64)

    def swap_in(self, pairs: list[tuple[int, int]]) -> None:
        if pairs:
            self.array[[gpu for _, gpu in pairs]] = self.host.read([cpu for cpu, _ in pairs])

    def swap_out(self, pairs: list[tuple[int, int]]) -> None:
        if pairs:
            self.host.write([cpu for _, cpu in pairs], self.array[[gpu for gpu, _ in pairs]])

    def copy(self, pairs: list[tuple[int, int]]) -> None:
        if pairs:
            self.array[[to for _, to in pairs]] = self.array[[source for source, _ in pairs]]

    def read(self, block: int) -> np.ndarray:
        return self.array[block].copy()

    def write(self, block: int, data: np.ndarray) -> None:
        self.array[block] = data


@dataclass(frozen=True)
class StubTicket:
    """A step on its way, and what it draws, row by row."""

    step: Step
    drawn: list[int]


class StubWorker:
    """Has the methods of `Worker` that an engine calls.

    Attributes:
        setups: What it was told of each request, by number.
    """

    def __init__(
        self, *, num_blocks: int, num_cpu_blocks: int, block_size: int, max_model_len: int
    ) -> None:
        self.table_width = -(-max_model_len // block_size)
        self.kv_cache = StubCache(num_blocks, num_cpu_blocks, block_size)
        self.setups: dict[int, RequestSetup] = {}
        self._block_size = block_size
        self._last_drawn: list[int] = []

    def recover(self) -> None:
        self.setups.clear()
        self.kv_cache.recover()

    def launch(self, step: Step) -> StubTicket:
        """All rows write before any of them reads, as in each layer of a model."""
        self.setups |= {setup.number: setup for setup in step.opened}
        self.kv_cache.swap_in(step.moves.swap_in)
        self.kv_cache.swap_out(step.moves.swap_out)
        self.kv_cache.copy(step.moves.copy)
        rows = [
            (row, self._known(row), self._slots(row, table))
            for row, table in zip(step.rows, step.block_tables, strict=True)
        ]
        flat = self.kv_cache.array.reshape(-1)
        for row, tokens, slots in rows:
            flat[slots[row.start :]] = contents(tokens, row.start)
        drawn: list[int] = []
        for row, _, slots in rows:
            if row.seq_id >= 0:  # a step that only tells what it costs has all in one block
                drawn += self._draw(row, self._read(row, slots))
        for number in step.closed:
            self.setups.pop(number, None)
        if drawn:
            self._last_drawn = drawn
        return StubTicket(step, drawn)

    def collect(self, ticket: StubTicket) -> StepResult:
        return StepResult(list(ticket.drawn))

    def _known(self, row: Row) -> list[int]:
        """The new tokens; one that the step before has drawn is taken from there."""
        return [t if t >= 0 else self._last_drawn[-1 - t] for t in row.tokens]

    def _slots(self, row: Row, table: np.ndarray) -> np.ndarray:
        positions = np.arange(row.end)
        return (
            table[positions // self._block_size] * self._block_size + positions % self._block_size
        )

    def _read(self, row: Row, slots: np.ndarray) -> list[int]:
        """The tokens of the whole context, as the cache has them."""
        found = self.kv_cache.array.reshape(-1)[slots] - 1
        positions = found // VOCABULARY
        assert (positions == np.arange(row.end)).all(), (
            f"I13: a row of request {row.request} reads the positions {positions}"
        )
        return (found % VOCABULARY).tolist()

    def _draw(self, row: Row, context: list[int]) -> list[int]:
        setup = self.setups[row.request]
        early = len(context) - len(setup.prompt_token_ids) < setup.min_tokens
        forbidden = setup.forbidden[0].tolist() if early else []
        samples = setup.rows[row.sample : row.sample + row.num_samples]
        return [next_token(context, seed_of(one), forbidden) for one in samples]


def seed_of(row: np.ndarray) -> int:
    """The 64 bits of the seed in a packed row, high word first."""
    high, low = row[:2].astype(np.uint32).tolist()
    return high << 32 | low
