"""A call's work, cut into items whose borders depend on one sequence alone.

So a sequence's result is the same bits in any company and on any number of threads. A sequence
with one query token has an item for each KV head and each part of PART positions of its context;
another one has an item for each KV head and each tile of its queries. Prefills come first, their
last tiles (which see most) first of all, so that what is left at the end is small.
"""

from typing import NamedTuple

from numba import njit

from pallas_kernels.numba.native import malloc, words
from pallas_kernels.numba.rows import padded
from pallas_kernels.numba.softmax import MASKED
from pallas_kernels.numba.work import Work, floats, integers

# Positions in one part of a context, counted from its beginning.
PART = 128
# Query vectors (tokens times heads of a group) in one tile.
TILE_ROWS = 192


class Item(NamedTuple):
    """One item: a KV head, and number `index` of the sequence's `count` parts or tiles.

    Attributes:
        partials: address of the sequence's partial results, [parts, heads, `partial_floats`].
        finished: address of the number of parts of this head that are finished.
    """

    seq: int
    head: int
    index: int
    count: int
    partials: int
    finished: int


@njit(cache=True)
def query_count(work: Work, seq: int) -> int:
    """Query tokens of a sequence that sees anything."""
    starts = integers(work.starts, work.seqs + 1)
    lens = integers(work.lens, work.seqs)
    return int(starts[seq + 1] - starts[seq]) if lens[seq] > 0 else 0


@njit(cache=True)
def first_visible(work: Work, position: int) -> int:
    """First position that the token at a position attends to."""
    return max(0, position - work.window + 1) if work.window > 0 else 0


@njit(cache=True)
def tile_queries(work: Work) -> int:
    """Query tokens in one tile."""
    return max(TILE_ROWS // work.group, 1)


@njit(cache=True)
def unit_count(work: Work, seq: int) -> int:
    """Parts of a decode's visible context, or tiles of a prefill's queries."""
    queries = query_count(work, seq)
    if queries != 1:
        return -(-queries // tile_queries(work))
    length = int(integers(work.lens, work.seqs)[seq])
    return -(-length // PART) - first_visible(work, length - 1) // PART


@njit(cache=True)
def partial_floats(work: Work) -> int:
    """Numbers that one part leaves: a row of sums for each head of the group, tops, and totals."""
    return padded(work.group) * (work.width + 2)


@njit(cache=True)
def make_plan(work: Work) -> tuple[int, int]:
    """The plan in memory of its own, to be freed, and the number of items.

    Its words: first item of each entry, one for the end; sequence of each entry; first partial
    result of each entry; parts finished of each sequence's head; then the partial results.
    """
    seqs, heads = work.seqs, work.kv_heads
    head_words = 3 * seqs + 1 + seqs * heads
    parts = 0
    for seq in range(seqs):
        if query_count(work, seq) == 1:
            parts += unit_count(work, seq)
    plan = malloc(8 * head_words + 4 * parts * heads * partial_floats(work))
    table = words(plan, head_words)
    table[3 * seqs + 1 :] = 0
    entry, items, parts = 0, 0, 0
    for decodes in range(2):
        for seq in range(seqs):
            if (query_count(work, seq) == 1) != (decodes == 1):
                continue
            units = unit_count(work, seq)
            table[entry], table[seqs + 1 + entry] = items, seq
            table[2 * seqs + 1 + entry] = parts
            items += units * heads
            parts += units * heads * decodes
            entry += 1
    table[seqs] = items
    return plan, items


@njit(cache=True)
def find_item(work: Work, plan: int, number: int) -> Item:
    """Item of a number."""
    seqs, heads = work.seqs, work.kv_heads
    table = words(plan, 3 * seqs + 1)
    low, high = 0, seqs
    while high - low > 1:
        middle = (low + high) // 2
        if table[middle] <= number:
            low = middle
        else:
            high = middle
    seq, within = int(table[seqs + 1 + low]), number - int(table[low])
    units = (int(table[low + 1]) - int(table[low])) // heads
    end = plan + 8 * (3 * seqs + 1 + seqs * heads)
    partials = end + 4 * int(table[2 * seqs + 1 + low]) * partial_floats(work)
    finished = plan + 8 * (3 * seqs + 1 + seq * heads + within % heads)
    return Item(seq, within % heads, within // heads, units, partials, finished)


@njit(cache=True)
def clear_unseeing(work: Work) -> None:
    """Zeros for the tokens of no sequence, and of sequences without context."""
    starts = integers(work.starts, work.seqs + 1)
    _clear(work, int(starts[work.seqs]), work.tokens)
    for seq in range(work.seqs):
        if query_count(work, seq) == 0:
            _clear(work, int(starts[seq]), int(starts[seq + 1]))


@njit(cache=True)
def _clear(work: Work, start: int, stop: int) -> None:
    first, last = start * work.heads, stop * work.heads
    floats(work.out, work.tokens * work.heads * work.dim)[first * work.dim : last * work.dim] = 0
    floats(work.top, work.tokens * work.heads)[first:last] = MASKED
    floats(work.denominator, work.tokens * work.heads)[first:last] = 0
