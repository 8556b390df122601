"""What an engine does at this moment, to be shown: whose block is whose, and tokens for rates.

A `BlockMap` has the requests in their queues, and the cells of both memories. A cell is one block,
or several neighbouring ones where a pool has more than `MAX_CELLS`; so what is shown stays small.
Nothing is kept here: a map is made from the block tables when somebody asks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from jax_engine.core.blocks import BlockTable
from jax_engine.core.scheduler import Scheduler
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.engine.running_requests import RunningRequests

MAX_CELLS = 1024
MAX_OWNERS = 4  # of one cell that are named
MAX_WAITING = 64  # waiting requests that are listed

type Ids = Int[np.ndarray, " N"]


@dataclass(frozen=True, slots=True)
class RequestView:
    """An unfinished request.

    Attributes:
        queue: "running", "swapped" or "waiting".
        num_samples: sequences that it samples, ended ones included.
        prompt_len: tokens of its prompt.
        num_computed: those of them whose KV is in the cache.
        num_cached: those that the prefix cache had when it was first admitted.
        output_len: tokens sampled, of all sequences that have not ended.
        num_blocks: blocks that it holds, on either device; one that its samples share counts once.
    """

    request_id: str
    queue: str
    num_samples: int
    prompt_len: int
    num_computed: int
    num_cached: int
    output_len: int
    num_blocks: int


class Cell(NamedTuple):
    """One cell that is not empty.

    Attributes:
        number: it begins with block `number * per_cell`.
        used: its blocks that are in use.
        shared: those in more than one block table.
        references: entries of block tables that name its blocks.
        tokens: tokens in the blocks that are used.
        cached: free blocks that still hold a prefix.
        num_owners: requests that use it.
        owners: the first of them, as indices of `BlockMap.requests`.
    """

    number: int
    used: int
    shared: int
    references: int
    tokens: int
    cached: int
    num_owners: int
    owners: list[int]


@dataclass(frozen=True, slots=True)
class Cells:
    """What one memory holds.

    Attributes:
        per_cell: blocks of a cell.
        span: blocks up to the last one that is used or cached.
        cells: those that are not empty, by number.
    """

    num_blocks: int
    num_used: int
    num_shared: int
    num_cached: int
    per_cell: int
    span: int
    cells: list[Cell]


@dataclass(frozen=True, slots=True)
class BlockMap:
    """Requests and memories at one moment.

    Attributes:
        requests: running ones, swapped ones, and the first that wait; oldest first.
        num_waiting: all that wait.
        device: the device's memory.
        host: host memory, with the blocks of swapped requests.
    """

    block_size: int
    requests: list[RequestView]
    num_waiting: int
    device: Cells
    host: Cells


class _Held(NamedTuple):
    """A block table: the index of its request, and how many of its tokens are computed."""

    owner: int
    table: BlockTable
    num_computed: int


def block_map(scheduler: Scheduler, max_cells: int = MAX_CELLS) -> BlockMap:
    """The map of a scheduler, between two steps."""
    blocks = scheduler.block_manager
    queues = {
        "running": scheduler.running,
        "swapped": scheduler.swapped,
        "waiting": scheduler.waiting[:MAX_WAITING],
    }
    requests: list[RequestView] = []
    held: dict[str, list[_Held]] = {"gpu": [], "cpu": []}
    for queue, groups in queues.items():
        for group in groups:
            found = _tables(blocks.tables, group, len(requests))
            for one in found:
                held[one.table.device].append(one)
            requests.append(_view(group, queue, found))
    size = blocks.block_size
    return BlockMap(
        size,
        requests,
        len(scheduler.waiting),
        _cells(blocks.num_gpu_blocks, size, held["gpu"], blocks.cached_blocks_now(), max_cells),
        _cells(blocks.num_cpu_blocks, size, held["cpu"], (), max_cells),
    )


def _tables(tables: dict[int, BlockTable], group: SequenceGroup, owner: int) -> list[_Held]:
    return [
        _Held(owner, tables[seq.seq_id], seq.num_computed_tokens)
        for seq in group.unfinished()
        if seq.seq_id in tables
    ]


def _view(group: SequenceGroup, queue: str, held: list[_Held]) -> RequestView:
    seqs = group.unfinished()
    return RequestView(
        group.request_id,
        queue,
        group.num_samples,
        group.prompt_len,
        min(group.prompt_len, max(seq.num_computed_tokens for seq in seqs)),
        group.num_cached_tokens or 0,
        sum(seq.output_len for seq in seqs),
        len(set().union(*(one.table.ids for one in held))),
    )


def _cells(
    num_blocks: int, block_size: int, held: list[_Held], cached: Iterable[int], max_cells: int
) -> Cells:
    """The cells of one pool; time in its blocks and in the entries of the tables."""
    ids, owners, tokens = _entries(held, block_size)
    references = np.bincount(ids, minlength=num_blocks)
    filled = np.zeros(num_blocks, np.int64)
    np.maximum.at(filled, ids, tokens)
    used = references > 0
    found = np.zeros(num_blocks, bool)
    found[np.fromiter(cached, np.int64)] = True
    kept = found & ~used
    taken = np.flatnonzero(used | kept)
    span = int(taken[-1]) + 1 if len(taken) else 0
    per_cell = max(1, -(-span // max_cells))
    shared = references > 1
    columns = [_sums(one[:span], per_cell) for one in (used, shared, references, filled, kept)]
    owned = _owners(ids // per_cell, owners, len(columns[0]))
    return Cells(
        num_blocks,
        int(used.sum()),
        int(shared.sum()),
        int(found.sum()),
        per_cell,
        span,
        [
            Cell(number, in_use, in_many, refs, fill, free, len(mine), mine[:MAX_OWNERS])
            for number, (in_use, in_many, refs, fill, free, mine) in enumerate(
                zip(*columns, owned, strict=True)
            )
            if in_use or free
        ],
    )


def _entries(held: list[_Held], block_size: int) -> tuple[Ids, Ids, Ids]:
    """All entries of the tables: each one's block, its request, and how much of it is computed."""
    if not held:
        none = np.zeros(0, np.int64)
        return none, none, none
    lengths = [len(one.table.ids) for one in held]
    ids = np.concatenate([one.table.row[:n] for one, n in zip(held, lengths, strict=True)])
    owners = np.repeat([one.owner for one in held], lengths)
    computed = np.repeat([one.num_computed for one in held], lengths)
    place = np.concatenate([np.arange(n) for n in lengths])
    return ids.astype(np.int64), owners, np.clip(computed - place * block_size, 0, block_size)


def _sums(values: np.ndarray[Any, Any], per_cell: int) -> list[int]:
    """Sums of so many neighbours each."""
    if not len(values):
        return []
    starts = np.arange(0, len(values), per_cell)
    sums: list[int] = np.add.reduceat(values.astype(np.int64), starts).tolist()
    return sums


def _owners(cells: Ids, owners: Ids, num_cells: int) -> list[list[int]]:
    """The requests that use each cell, oldest first."""
    most = int(owners.max(initial=0)) + 1
    pairs = np.unique(cells * most + owners)
    bounds = np.searchsorted(pairs, np.arange(num_cells + 1) * most).tolist()
    mine = (pairs % most).tolist()
    return [mine[first:last] for first, last in pairwise(bounds)]


@dataclass(frozen=True, slots=True)
class EngineState:
    """One moment of an engine.

    Attributes:
        time: seconds of the engine's clock.
        prompt_tokens: prompt tokens of the requests that got their first token, and those of the
            others that are in the cache. A preemption or an abort of such another request takes its
            tokens away again.
        generated_tokens: tokens sampled so far.
        num_recomputed: preemptions by recompute.
        num_swapped_out: preemptions by swap.
    """

    time: float
    map: BlockMap
    prompt_tokens: int
    generated_tokens: int
    num_recomputed: int
    num_swapped_out: int


def engine_state(scheduler: Scheduler, running: RunningRequests, now: float) -> EngineState:
    """The state between two steps. It is counted now: nothing is kept for it while nobody asks."""
    total = running.recorder.total
    preemptions = scheduler.num_preemptions
    requests = running.requests.values()
    prompts = sum(  # the others' were counted with their first token
        min(one.group.prompt_len, max(seq.num_computed_tokens for seq in one.group.unfinished()))
        for one in requests
        if one.metrics.first_token_time is None
    )
    beams = [one.results for one in requests if not one.results.counts_samples]
    generated = sum(one.num_generated for one in beams)  # these are counted at their end
    return EngineState(
        now,
        block_map(scheduler),
        total("prompt_tokens") + prompts,
        total("generation_tokens") + generated,
        preemptions["recompute"],
        preemptions["swap"],
    )
