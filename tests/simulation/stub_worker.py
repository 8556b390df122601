"""A worker without a device that checks by itself what it reads: no oracle runs beside it.

It stands where `jax_engine.worker.worker.Worker` stands, behind the same methods; nothing else of
the simulation knows what a step looks like to a worker. A slot of its cache holds the token that
was written there and the token's position. A step reads its whole context through the block table,
and fails if a slot holds anything else than the sequence's own token. The swap space is the
engine's own, so that the host may run out of memory. There is no sampler and there are no
log-probabilities: `tests/support/reference_worker.py` has both, as the oracle does them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jax_engine.core.output import ScheduledSequence, SchedulerOutput
from jax_engine.worker import host_blocks
from jax_engine.worker.worker import StepResult
from reference.random_numbers import derive_seed
from tests.simulation.model import VOCABULARY, next_token

BLOCKS_A_PIECE = 3  # of the swap space: so few that several pieces are made


def contents(token_ids: list[int]) -> np.ndarray:
    """What the slots of these tokens, the first of a sequence, must hold."""
    return np.arange(len(token_ids)) * VOCABULARY + np.array(token_ids, np.int64) + 1


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
class StubStep:
    """A step on its way: its plan, and what it draws, row by row."""

    plan: SchedulerOutput
    drawn: list[int]


@dataclass(frozen=True)
class StubRequest:
    seed: int
    min_tokens: int
    ends: frozenset[int]


class StubWorker:
    """Has the methods of `Worker` that an engine calls.

    Attributes:
        requests: What it keeps of each request, by id.
    """

    mask_seconds = 0.0

    def __init__(
        self, *, num_blocks: int, num_cpu_blocks: int, block_size: int, max_model_len: int
    ) -> None:
        self.table_width = -(-max_model_len // block_size)
        self.kv_cache = StubCache(num_blocks, num_cpu_blocks, block_size)
        self.requests: dict[Any, StubRequest] = {}
        self._block_size = block_size

    def add_request(
        self, request_id: Any, params: Any, seed: int, eos: frozenset[int], constraints: Any = None
    ) -> None:
        ends = eos | set(params.stop_token_ids or ())
        self.requests[request_id] = StubRequest(seed, params.min_tokens, ends)

    def remove_request(self, request_id: Any) -> None:
        self.requests.pop(request_id, None)

    def move_blocks(self, output: SchedulerOutput) -> None:
        self.kv_cache.swap_in(output.blocks_to_swap_in)
        self.kv_cache.swap_out(output.blocks_to_swap_out)
        self.kv_cache.copy(output.blocks_to_copy)

    def launch(
        self, output: SchedulerOutput, blocks: Any, before: StubStep | None = None
    ) -> StubStep:
        """All rows write before any of them reads, as in each layer of a model."""
        self.move_blocks(output)
        rows = [
            (item, _context(item, before), self._slots(item, blocks)) for item in output.scheduled
        ]
        for item, context, slots in rows:
            self.kv_cache.array.reshape(-1)[slots[item.start :]] = contents(context)[item.start :]
        drawn: list[int] = []
        for item, context, slots in rows:
            found = self.kv_cache.array.reshape(-1)[slots]
            measured = item.seq.seq_id < 0  # a step that only tells what it costs: all in a block
            assert measured or (found == contents(context)).all(), (
                f"I13: {item.group.request_id} reads {found} for {contents(context)}"
            )
            drawn += self._draw(item, context)
        return StubStep(output, drawn)

    def collect(self, step: StubStep) -> StepResult:
        return StepResult(list(step.drawn), None, {})

    def _slots(self, item: ScheduledSequence, blocks: Any) -> np.ndarray:
        positions = np.arange(item.start + item.num_tokens)
        table = blocks.block_table_row(item.seq.seq_id)
        return (
            table[positions // self._block_size] * self._block_size + positions % self._block_size
        )

    def _draw(self, item: ScheduledSequence, context: list[int]) -> list[int]:
        request = self.requests[item.group.request_id]
        early = len(context) - item.group.prompt_len < request.min_tokens
        forbidden = request.ends if early else frozenset()
        first = item.seq.index
        return [
            next_token(context, derive_seed(request.seed, first + i), forbidden)
            for i in range(item.num_samples)
        ]


def _context(item: ScheduledSequence, before: StubStep | None) -> list[int]:
    """The tokens that a row reads; one that the step before draws is taken from there."""
    tokens = item.seq.token_ids[: item.start + item.num_tokens]
    if len(tokens) < item.start + item.num_tokens:
        assert before is not None and item.seq.pending < 0
        tokens = [*tokens, before.drawn[-1 - item.seq.pending]]
    return tokens
