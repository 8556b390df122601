"""Cuts a call's work into items whose borders depend on one sequence alone.

So a sequence's result is the same bits in any batch and on any number of threads. A sequence with
one query token has an item for each part of PART positions of its context. Any other sequence has
an item for each KV head and each tile of its queries. Prefills come first. Each starts with its
last tile, which has the longest context, so that the last items are small.
"""

from typing import NamedTuple

from cpu_kernels.attention.rows import padded
from cpu_kernels.attention.softmax import MASKED
from cpu_kernels.attention.work import Work
from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.memory import clear, malloc
from cpu_kernels.simd.structs import int64s

# Positions in one part of a context, counted from its beginning.
PART = 64
# Query vectors (tokens times heads of a group) in one tile.
TILE_ROWS = 192


class Item(NamedTuple):
    """One item: number `number` of a sequence's `total` parts, or of its tiles for a KV head.

    Attributes:
        partials: address of the sequence's partial results, [parts, `partial_floats`].
        finished: address of the number of the sequence's parts that are finished.
    """

    seq: int
    head: int
    number: int
    total: int
    partials: int
    finished: int


@inner
def query_count(work: Work, seq: int) -> int:
    """Query tokens of a sequence; 0 if it has no context."""
    begin, end = work.query_start_loc[seq], work.query_start_loc[seq + 1]
    return end - begin if work.context_lens[seq] > 0 else 0


@inner
def first_visible(work: Work, position: int) -> int:
    """First position that the token at a position attends to."""
    return max(0, position - work.window + 1) if work.window > 0 else 0


@inner
def tile_queries(work: Work) -> int:
    """Query tokens in one tile."""
    return max(TILE_ROWS // work.group, 1)


@inner
def unit_count(work: Work, seq: int) -> int:
    """Parts of a decode's visible context, or tiles of a prefill's queries."""
    queries = query_count(work, seq)
    if queries != 1:
        return -(-queries // tile_queries(work))
    context_len = work.context_lens[seq]
    return -(-context_len // PART) - first_visible(work, context_len - 1) // PART


@inner
def unit_heads(work: Work, seq: int) -> int:
    """Items in a unit: one for a decode, since the keys of all heads are neighbours in memory."""
    return 1 if query_count(work, seq) == 1 else work.kv_heads


@inner
def partial_floats(work: Work) -> int:
    """Floats in a part's partial result: sums, a top and a total for each query head."""
    return work.kv_heads * padded(work.group) * (work.width + 2)


@inner
def make_plan(work: Work) -> int:
    """Allocates and writes the plan at `work.plan`; returns the number of items.

    Its words: the first item of each entry, then the number of items; the sequence of each entry;
    the first partial result of each entry; the number of finished parts of each sequence; the
    partial results.
    """
    seqs = work.seqs
    head_words, parts = 4 * seqs + 1, 0
    for seq in range(seqs):
        if query_count(work, seq) == 1:
            parts += unit_count(work, seq)
    work.plan = malloc(8 * head_words + 4 * parts * partial_floats(work))
    table = int64s(work.plan)
    for i in range(3 * seqs + 1, head_words):
        table[i] = 0
    entry, items, parts = 0, 0, 0
    for decodes in range(2):
        for seq in range(seqs):
            if (query_count(work, seq) == 1) != (decodes == 1):
                continue
            units = unit_count(work, seq)
            table[entry], table[seqs + 1 + entry] = items, seq
            table[2 * seqs + 1 + entry] = parts
            items += units * unit_heads(work, seq)
            parts += units * decodes
            entry += 1
    table[seqs] = items
    return items


@inner
def find_item(work: Work, which: int) -> Item:
    """The item with this number."""
    seqs = work.seqs
    plan = work.plan
    table = int64s(plan)
    low, high = 0, seqs
    while high - low > 1:
        middle = (low + high) // 2
        if table[middle] <= which:
            low = middle
        else:
            high = middle
    seq, within = table[seqs + 1 + low], which - table[low]
    heads = unit_heads(work, seq)
    units = (table[low + 1] - table[low]) // heads
    end = plan + 8 * (4 * seqs + 1)
    partials = end + 4 * table[2 * seqs + 1 + low] * partial_floats(work)
    finished = plan + 8 * (3 * seqs + 1 + seq)
    return Item(seq, within % heads, within // heads, units, partials, finished)


@inner
def clear_unseeing(work: Work) -> None:
    """Writes zeros for tokens of no sequence, and of sequences without context."""
    _clear(work, work.query_start_loc[work.seqs], work.tokens)
    for seq in range(work.seqs):
        if query_count(work, seq) == 0:
            _clear(work, work.query_start_loc[seq], work.query_start_loc[seq + 1])


@inner
def _clear(work: Work, start: int, stop: int) -> None:
    for row in range(start * work.heads, stop * work.heads):
        work.top[row] = MASKED
        work.denominator[row] = 0.0
    size = 4 * work.heads * work.dim
    if start < stop:
        clear(work.out + start * size, (stop - start) * size)
