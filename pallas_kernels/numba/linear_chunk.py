"""One chunk of a product: some rows of weights with some rows of x, float32 or bfloat16.

Rows of weights are taken in as many streams as `dots` takes rows, one row of each at a time. A
processor that cannot multiply bfloat16 has it widened to float32 in pairs: in registers for few
rows of x, where a number is used once or twice; for more into scratch, part by part, where it is
used often.
"""

from typing import Any, NamedTuple

import numpy as np

from pallas_kernels.numba.dot_rows import LANES, MULTIPLIES_PAIRS, STEP, widen_pairs
from pallas_kernels.numba.dots import WEIGHT_ROWS, X_ROWS, dots_of
from pallas_kernels.numba.jit import inner

# Up to so many rows of x, rows of weights are read to their ends, as memory likes it, and the
# processor's own prefetching is enough. Of more a part at a time, so that the same part of x stays
# near.
FEW_TOKENS = 8
# Whether those that come next are asked for with so few rows of x, too: with AVX2 alone (Zen 3)
# that took a quarter longer at one row, with AVX-512 (Zen 5) it gained a fifth at 8.
PREFETCHES_FEW = LANES == 16
PART = 768  # numbers of a row in one part, at most
LINE = 64  # bytes of a cache line

_four, _four_bf16 = dots_of(X_ROWS, bfloat16=False), dots_of(X_ROWS, bfloat16=True)
_one, _one_bf16 = dots_of(1, bfloat16=False), dots_of(1, bfloat16=True)


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
def _item_bytes(chunk: Chunk) -> int:
    return 2 if chunk.bfloat16 else 4


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
    if chunk.tokens <= FEW_TOKENS:
        _multiply_few(chunk)
    else:
        _multiply_many(chunk, scratch)


@inner
def _multiply_few(chunk: Chunk) -> None:
    streams = chunk.rows // WEIGHT_ROWS
    for row in range(streams):
        _to_the_end(chunk, row, streams, chunk.rows)
    for row in range(streams * WEIGHT_ROWS, chunk.rows, WEIGHT_ROWS):
        _to_the_end(chunk, row, 1, chunk.rows - 1 - row)


@inner
def _multiply_many(chunk: Chunk, scratch: int) -> None:
    parts, at = _part_count(chunk.size), np.int64(0)
    for part in range(parts):
        until = _part_end(chunk.size, part, parts)
        here, count = _from(chunk, at), until - at
        if chunk.bfloat16 and _widens(chunk.tokens):
            here = _widened(here, count, scratch)
            count = (count + STEP - 1) // STEP * STEP
        for row in range(0, chunk.rows, WEIGHT_ROWS):
            ahead = WEIGHT_ROWS * here.size
            _rows(here, row, 1, chunk.rows - 1 - row, count, part, ahead, True)
        at = until


@inner
def _to_the_end(chunk: Chunk, row: int, apart: int, last: int) -> None:
    """All parts of some rows of weights; arguments as `dots_of` has them."""
    parts, at = _part_count(chunk.size), np.int64(0)
    for part in range(parts):
        until = _part_end(chunk.size, part, parts)
        here, count = _from(chunk, at), until - at
        if chunk.tokens == 1:
            _row(here, row, apart, last, count, part)
        else:
            _rows(here, row, apart, last, count, part, count, PREFETCHES_FEW)
        at = until


@inner
def _part_count(size: int) -> int:
    return max((size + PART - 1) // PART, 1)


@inner
def _part_end(size: int, part: int, parts: int) -> int:
    """Where one of the parts of a row of `size` numbers ends."""
    if part + 1 == parts:
        return size
    return (size + STEP - 1) // STEP * (part + 1) // parts * STEP


@inner
def _from(chunk: Chunk, at: int) -> Chunk:
    """The same from a number of its rows on."""
    skipped = _item_bytes(chunk) * at
    weights, x, out, rows, tokens, size, length, width, bfloat16 = chunk
    return Chunk(weights + skipped, x + skipped, out, rows, tokens, size, length, width, bfloat16)


@inner
def _widened(chunk: Chunk, count: int, scratch: int) -> Chunk:
    """`count` numbers of each row, in float32."""
    room = _room(chunk.size)
    place = scratch + 4 * chunk.tokens * room
    _widen(chunk.x, chunk.length, scratch, room, chunk.tokens, count)
    _widen(chunk.weights, chunk.size, place, room, chunk.rows, count)
    return Chunk(
        place, scratch, chunk.out, chunk.rows, chunk.tokens, room, room, chunk.width, False
    )


@inner
def _row(chunk: Chunk, row: int, apart: int, last: int, count: int, more: int) -> None:
    """What `_rows` does, for one row of x: memory is all that it waits for.

    The processor's own prefetching is enough, and any instruction more is one that the next rows of
    weights are asked for later.
    """
    size, length, width, x = chunk.size, chunk.length, chunk.width, chunk.x
    numbers = (x, chunk.out + 4 * row, count, size, length, width, more)
    if chunk.bfloat16:
        _one_bf16(chunk.weights + 2 * row * size, apart, last, *numbers, 0, 0, 0)
    else:
        _one(chunk.weights + 4 * row * size, apart, last, *numbers, 0, 0, 0)


@inner
def _rows(
    chunk: Chunk,
    row: int,
    apart: int,
    last: int,
    count: int,
    more: int,
    ahead: int,
    prefetches: bool,
) -> None:
    """Some rows of weights, so many rows apart, with all rows of x; see `dots_of` for the rest.

    Meanwhile what lies `ahead` numbers on comes nearer, spread evenly: many prefetches at once
    would delay what is loaded beside them.
    """
    size, length, width = chunk.size, chunk.length, chunk.width
    item = _item_bytes(chunk)
    weights, x, out = chunk.weights + item * row * size, chunk.x, chunk.out + 4 * row
    step, following = item * size * apart, weights + item * ahead
    blocks = chunk.tokens // X_ROWS
    calls, owed = blocks + chunk.tokens % X_ROWS, np.int64(0)
    numbers = (count, size, length, width, more)
    for call in range(calls):
        near: Any = np.int64(0)
        owed += WEIGHT_ROWS if prefetches else 0
        while owed >= calls:
            owed, near = owed - calls, near + 1
        ahead_of = (following, step, near)
        if call < blocks and chunk.bfloat16:
            _four_bf16(weights, apart, last, x, out, *numbers, *ahead_of)
        elif call < blocks:
            _four(weights, apart, last, x, out, *numbers, *ahead_of)
        elif chunk.bfloat16:
            _one_bf16(weights, apart, last, x, out, *numbers, *ahead_of)
        else:
            _one(weights, apart, last, x, out, *numbers, *ahead_of)
        done = X_ROWS if call < blocks else 1
        x, out, following = (
            x + done * item * length,
            out + done * 4 * width,
            following + near * step,
        )
