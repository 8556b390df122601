"""Cuts a call's work into items whose borders depend on one sequence alone.

So a sequence's result is the same bits in any batch and on any number of threads. The queries at a
prompt's positions are prefilled: an item is a tile of them for one KV head. Each query behind the
prompt is a decode: an item is one part of PART positions of the context, for up to FEW consecutive
decodes, such as drafts, which read it together. Where a sequence has many decodes, as one that is
computed again, an item is one decode's whole context. Prefills come first. Each starts with its
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
# Decodes of a sequence that read a part of their context together.
FEW = 8
# Decodes of one sequence whose contexts are cut into items. With more there are items enough.
MANY = 32


class Item(NamedTuple):
    """One item: a tile of a prompt's queries for one KV head, or decodes' part or whole context.

    Attributes:
        seq: the sequence.
        is_decode: whether it is one of decodes.
        head, heads: first KV head, and how many; one for a tile.
        number: number of the tile, from the last one on; or of the part, counted from position 0;
            -1 for a whole context.
        token: first query token of the sequence's prompt queries; or of the decodes.
        position: that token's position.
        queries: number of decodes.
        partials: address of the decodes' partial results, [parts, `partial_floats`]: where the one
            of part 0 would be, whether or not it is visible.
        finished: address of the number of the decodes' parts that are finished.
    """

    seq: int
    is_decode: bool
    head: int
    heads: int
    number: int
    token: int
    position: int
    queries: int
    partials: int
    finished: int


@inner
def query_count(work: Work, seq: int) -> int:
    """Query tokens of a sequence; 0 if it has no context."""
    begin, end = work.query_start_loc[seq], work.query_start_loc[seq + 1]
    return end - begin if work.context_lens[seq] > 0 else 0


@inner
def first_position(work: Work, seq: int) -> int:
    """Position of a sequence's first query."""
    return work.context_lens[seq] - query_count(work, seq)


@inner
def prompt_queries(work: Work, seq: int) -> int:
    """How many of a sequence's queries are its prompt's; the others are decodes."""
    left = work.prompt_lens[seq] - first_position(work, seq)
    return min(max(left, 0), query_count(work, seq))


@inner
def first_visible(work: Work, position: int) -> int:
    """First position that the token at a position attends to."""
    return max(0, position - work.window + 1) if work.window > 0 else 0


@inner
def first_part(work: Work, position: int) -> int:
    """First part of the context that the token at a position attends to."""
    return first_visible(work, position) // PART


@inner
def tile_queries(work: Work) -> int:
    """Query tokens in one tile."""
    return max(TILE_ROWS // work.group, 1)


@inner
def tile_count(work: Work, seq: int) -> int:
    """Tiles of a sequence's prompt queries."""
    return -(-prompt_queries(work, seq) // tile_queries(work))


@inner
def decode_count(work: Work, seq: int) -> int:
    """How many of a sequence's queries are decodes."""
    return query_count(work, seq) - prompt_queries(work, seq)


@inner
def part_count(work: Work, seq: int) -> int:
    """Parts that a sequence's decodes see, all of them together."""
    begin = first_position(work, seq) + prompt_queries(work, seq)
    return -(-work.context_lens[seq] // PART) - first_part(work, begin)


@inner
def partial_floats(work: Work, decodes: int, heads: int) -> int:
    """Floats in a part's partial result: sums, a top and a total for each query head."""
    return heads * padded(decodes * work.group) * (work.width + 2)


@inner
def heads_at_once(work: Work, seq: int) -> int:
    """KV heads in an item of a sequence's decodes."""
    return 1 if 1 < decode_count(work, seq) <= MANY else work.kv_heads


@inner
def bunch_count(work: Work, seq: int) -> int:
    """Bunches of up to FEW decodes of a sequence for some KV heads; none where it has too many."""
    decodes = decode_count(work, seq)
    return 0 if decodes > MANY else -(-decodes // FEW) * (work.kv_heads // heads_at_once(work, seq))


@inner
def bunches_bytes(work: Work, seq: int) -> int:
    """Bytes of the partial results of a sequence's bunches, and of their numbers of parts."""
    size = partial_floats(work, min(decode_count(work, seq), FEW), heads_at_once(work, seq))
    return bunch_count(work, seq) * (8 + 4 * part_count(work, seq) * size)


@inner
def make_plan(work: Work) -> int:
    """Allocates and writes the plan at `work.plan`; returns the number of items.

    Its words: the first item of each sequence's prefill, then of each sequence's decodes, then the
    number of items; the address of what each sequence's bunches share; then that: the number of
    finished parts of each bunch, and their partial results.
    """
    seqs, size = work.seqs, 8 * (3 * work.seqs + 1)
    work.longest = 0
    for seq in range(seqs):
        size += bunches_bytes(work, seq)
        if decode_count(work, seq) > MANY:
            work.longest = max(work.longest, part_count(work, seq))
    work.plan = malloc(size)
    table = int64s(work.plan)
    items, shared = 0, work.plan + 8 * (3 * seqs + 1)
    for seq in range(seqs):
        table[seq] = items
        items += tile_count(work, seq) * work.kv_heads
    for seq in range(seqs):
        table[seqs + seq], table[2 * seqs + 1 + seq] = items, shared
        decodes, bunches = decode_count(work, seq), bunch_count(work, seq)
        items += decodes if decodes > MANY else bunches * part_count(work, seq)
        clear(shared, 8 * bunches)
        shared += bunches_bytes(work, seq)
    table[2 * seqs] = items
    return items


@inner
def find_item(work: Work, which: int) -> Item:
    """The item with this number."""
    seqs, table = work.seqs, int64s(work.plan)
    low, high = 0, 2 * seqs
    while high - low > 1:
        middle = (low + high) // 2
        if table[middle] <= which:
            low = middle
        else:
            high = middle
    within = which - table[low]
    if low < seqs:
        token, heads, start = work.query_start_loc[low], work.kv_heads, first_position(work, low)
        return Item(low, False, within % heads, 1, within // heads, token, start, 0, 0, 0)
    return _find_decodes(work, low - seqs, within)


@inner
def _find_decodes(work: Work, seq: int, within: int) -> Item:
    """The item with this number among those of a sequence's decodes."""
    prompts, decodes = prompt_queries(work, seq), decode_count(work, seq)
    token, position = work.query_start_loc[seq] + prompts, first_position(work, seq) + prompts
    heads, parts = heads_at_once(work, seq), part_count(work, seq)
    if decodes > MANY:
        token, position = token + within, position + within
        return Item(seq, True, 0, heads, -1, token, position, 1, 0, 0)
    # All parts of a bunch follow each other, so that it is merged while others are computed.
    bunch, begin = within // parts, first_part(work, position)
    head = bunch % (work.kv_heads // heads) * heads
    first = bunch // (work.kv_heads // heads) * FEW
    shared = int64s(work.plan)[2 * work.seqs + 1 + seq]
    count = min(FEW, decodes - first)
    room = 4 * parts * partial_floats(work, min(decodes, FEW), heads)
    partials = shared + 8 * bunch_count(work, seq) + bunch * room
    partials -= 4 * begin * partial_floats(work, count, heads)
    number, finished = begin + within % parts, shared + 8 * bunch
    token, position = token + first, position + first
    return Item(seq, True, head, heads, number, token, position, count, partials, finished)


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
