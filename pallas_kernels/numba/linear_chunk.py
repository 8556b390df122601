"""One chunk of a product: some rows of weights with some rows of x, float32 or bfloat16.

Rows of weights are taken in as many streams as `dots` takes rows, one row of each at a time. A
processor that cannot multiply bfloat16 has it widened to float32 in pairs: in registers for few
rows of x, where a number is used once or twice; for more into scratch, part by part, where it is
used often.
"""

from typing import NamedTuple

from pallas_kernels.numba.dot_rows import LANES, MULTIPLIES_PAIRS, STEP, widen_pairs
from pallas_kernels.numba.dots import WEIGHT_ROWS, X_ROWS, dots_of
from pallas_kernels.numba.jit import inner
from pallas_kernels.numba.row_shares import range_of

# Up to so many rows of x, rows of weights are read to their ends, as memory likes it, and the
# processor's own prefetching is enough. Of more a part at a time, so that the same part of x stays
# near.
FEW_TOKENS = 8
# Whether those that come next are asked for with so few rows of x, too: with AVX2 alone (Zen 3)
# that took a quarter longer at one row, with AVX-512 (Zen 5) it gained a fifth at 8.
PREFETCHES_FEW = LANES == 16
PART = 768  # numbers of a row in one part, at most
LINE = 64  # bytes of a cache line

_block, _block_bf16 = dots_of(X_ROWS, bfloat16=False), dots_of(X_ROWS, bfloat16=True)
_row, _row_bf16 = dots_of(1, bfloat16=False), dots_of(1, bfloat16=True)


class Chunk(NamedTuple):
    """Addresses of the first row of weights, of x and of out; how many rows of weights and of x.

    Attributes:
        size: numbers of a row, and from one row of weights to the next.
        length, width: from one row to the next in x and in out.
    """

    weights: int
    x: int
    out: int
    rows: int
    tokens: int
    size: int
    length: int
    width: int
    bfloat16: bool


@inner
def _room(size: int) -> int:
    """Numbers from one row of scratch to the next. Rows do not lie a power of two apart."""
    return (min(size, PART) + STEP - 1) // STEP * STEP + LINE // 4


@inner
def _widens(tokens: int) -> bool:
    """Whether bfloat16 is widened into scratch for so many rows of x."""
    return tokens > FEW_TOKENS and not MULTIPLIES_PAIRS


@inner
def scratch_bytes(rows: int, tokens: int, size: int) -> int:
    """What `multiply` needs for chunks of bfloat16 with at most so many rows."""
    return 4 * (rows + tokens) * _room(size) if _widens(tokens) else 0


@inner
def _widen(source: int, length: int, target: int, room: int, rows: int, count: int) -> None:
    """`count` numbers of each of some rows of bfloat16, as float32 in pairs."""
    for row in range(rows):
        start, place = source + 2 * row * length, target + 4 * row * room
        for at in range(0, count, STEP):
            widen_pairs(start + 2 * at, count - at, place + 4 * at)


@inner
def multiply(chunk: Chunk, scratch: int) -> None:
    """All products of a chunk. All sums run over the same parts in the same order."""
    few = chunk.tokens <= FEW_TOKENS
    wide = chunk.bfloat16 and _widens(chunk.tokens)
    narrow, item = chunk.bfloat16 and not wide, 2 if chunk.bfloat16 else 4  # bytes
    room = _room(chunk.size)
    steps = (chunk.rows + WEIGHT_ROWS - 1) // WEIGHT_ROWS
    parts = max((chunk.size + PART - 1) // PART, 1)
    for turn in range(parts * steps):
        part, step = (turn % parts, turn // parts) if few else (turn // steps, turn % steps)
        at, until = range_of((chunk.size + STEP - 1) // STEP, part, parts)
        at, until = STEP * at, min(STEP * until, chunk.size)
        weights, size = chunk.weights + item * at, chunk.size
        x, length, count = chunk.x + item * at, chunk.length, until - at
        if wide:
            place = scratch + 4 * chunk.tokens * room
            if step == 0:
                _widen(x, length, scratch, room, chunk.tokens, count)
                _widen(weights, size, place, room, chunk.rows, count)
            weights, size, x, length = place, room, scratch, room
            count = (count + STEP - 1) // STEP * STEP
        row, apart, last = _taken(chunk.rows, step, few)
        start, out = weights + (2 if narrow else 4) * row * size, chunk.out + 4 * row
        _rows(
            start, apart, last, x, out, chunk.tokens, count, size, length, chunk.width, part, narrow
        )


@inner
def _taken(rows: int, step: int, few: bool) -> tuple[int, int, int]:
    """First row of weights of a step, how far the others are apart, and the last less the first."""
    streams = rows // WEIGHT_ROWS
    if few and step < streams:
        return step, streams, rows
    first = WEIGHT_ROWS * step
    return first, 1, rows - 1 - first


@inner
def _rows(
    weights: int,
    apart: int,
    last: int,
    x: int,
    out: int,
    tokens: int,
    count: int,
    size: int,
    length: int,
    width: int,
    more: int,
    bfloat16: bool,
) -> None:
    """Some rows of weights, so many rows apart, with all rows of x; see `dots_of` for the rest.

    Meanwhile the rows that follow come nearer, spread evenly: many prefetches at once would delay
    what is loaded beside them.
    """
    item = 2 if bfloat16 else 4  # bytes
    step = item * size * apart
    following = weights + (WEIGHT_ROWS * step if apart == 1 else item * size)
    blocks = tokens // X_ROWS
    calls = blocks + tokens % X_ROWS
    for call in range(calls):
        first, end = range_of(WEIGHT_ROWS, call, calls)
        ahead = following + first * step
        near = end - first if PREFETCHES_FEW or tokens > FEW_TOKENS else 0
        token = X_ROWS * min(call, blocks) + max(call - blocks, 0)
        a, b = x + item * token * length, out + 4 * token * width
        strides = (count, size, length, width)
        if call < blocks and bfloat16:
            _block_bf16(weights, apart, last, a, b, *strides, more, ahead, step, near)
        elif call < blocks:
            _block(weights, apart, last, a, b, *strides, more, ahead, step, near)
        elif bfloat16:
            _row_bf16(weights, apart, last, a, b, *strides, more, ahead, step, near)
        else:
            _row(weights, apart, last, a, b, *strides, more, ahead, step, near)
