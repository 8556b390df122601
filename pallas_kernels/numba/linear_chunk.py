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
from pallas_kernels.numba.jit import inlined, inner
from pallas_kernels.numba.row_shares import range_of

# Up to so many rows of x, rows of weights are read to their ends, as memory likes it. Of more a
# part at a time, so that the same part of x stays near.
FEW_TOKENS = 8
# Whether those that come next are asked for with 2 to 8 rows of x, too: with AVX-512 (Zen 5) that
# gained a fifth at 8. With AVX2 alone it was tried at one row only, and took a quarter longer.
PREFETCHES_FEW = LANES == 16
PART = 768  # numbers of a row in one part, at most
LINE = 64  # bytes of a cache line


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


@inner
def part_count(size: int) -> int:
    """Into how many parts rows of `size` numbers are cut."""
    return max((size + PART - 1) // PART, 1)


@inner
def part_end(size: int, part: int, parts: int) -> int:
    """Where one of the parts ends, which begins where the one before it does."""
    if part + 1 == parts:
        return size
    return STEP * range_of((size + STEP - 1) // STEP, part, parts)[1]


def row_of(*, bfloat16: bool) -> Any:
    """A Numba function: some rows of weights with one row of x, for which memory is waited for.

    The processor's own prefetching is enough, and every instruction more is one that the next rows
    of weights are asked for later: `rows_of`'s functions, whose arguments are the same, take half
    as long again.
    """
    item, one = 2 if bfloat16 else 4, dots_of(1, bfloat16=bfloat16)

    @inlined
    def row(
        chunk: Chunk, first: int, apart: int, last: int, at: int, count: int, more: int, ahead: int
    ) -> None:
        size = chunk.size
        weights, x = chunk.weights + item * (first * size + at), chunk.x + item * at
        numbers = (count, size, chunk.length, chunk.width, more)
        one(weights, apart, last, x, chunk.out + 4 * first, *numbers, 0, 0, 0)

    return row


def rows_of(*, bfloat16: bool) -> Any:
    """A Numba function: some rows of weights with all rows of x.

    Its arguments:
        chunk: what they are rows of.
        first, apart, last: row number `first`, and others as `dots_of` takes them.
        at, count: `count` numbers of each row, from number `at` on.
        more: 1 if the products are to be added to what is in out, else 0.
        ahead: so many numbers on lies what is read next. It comes nearer meanwhile, spread evenly:
            many prefetches at once would delay what is loaded beside them. 0: nothing.
    """
    item, one = 2 if bfloat16 else 4, dots_of(1, bfloat16=bfloat16)
    four = dots_of(X_ROWS, bfloat16=bfloat16)

    @inner
    def rows(
        chunk: Chunk, first: int, apart: int, last: int, at: int, count: int, more: int, ahead: int
    ) -> None:
        size, length, width = chunk.size, chunk.length, chunk.width
        weights, x = chunk.weights + item * (first * size + at), chunk.x + item * at
        out, step, following = chunk.out + 4 * first, item * size * apart, weights + item * ahead
        blocks = chunk.tokens // X_ROWS
        calls, owed = blocks + chunk.tokens % X_ROWS, np.int64(0)
        numbers = (count, size, length, width, more)
        for call in range(calls):
            # As `range_of` shares them out, without its divisions: they took 5 % at 16 rows.
            near: Any = np.int64(0)
            owed += WEIGHT_ROWS if ahead > 0 else 0
            while owed >= calls:
                owed, near = owed - calls, near + 1
            if call < blocks:
                four(weights, apart, last, x, out, *numbers, following, step, near)
                x, out = x + X_ROWS * item * length, out + X_ROWS * 4 * width
            else:
                one(weights, apart, last, x, out, *numbers, following, step, near)
                x, out = x + item * length, out + 4 * width
            following += near * step

    return rows


def _to_their_ends(product: Any) -> Any:
    """A Numba function: a chunk's products, rows of weights read to their ends."""

    @inlined
    def whole_rows(chunk: Chunk, first: int, apart: int, last: int) -> None:
        parts, at = part_count(chunk.size), np.int64(0)
        for part in range(parts):
            count = part_end(chunk.size, part, parts) - at
            ahead = count if PREFETCHES_FEW else 0
            product(chunk, first, apart, last, at, count, part, ahead)
            at += count

    @inner
    def multiply(chunk: Chunk) -> None:
        streams = chunk.rows // WEIGHT_ROWS
        for first in range(streams):
            whole_rows(chunk, first, streams, chunk.rows)
        for first in range(streams * WEIGHT_ROWS, chunk.rows, WEIGHT_ROWS):
            whole_rows(chunk, first, 1, chunk.rows - 1 - first)

    return multiply


def _part_of_all(product: Any) -> Any:
    """A Numba function: `count` numbers of all rows, from number `at` on."""

    @inner
    def part_of_all(chunk: Chunk, at: int, count: int, more: int) -> None:
        for first in range(0, chunk.rows, WEIGHT_ROWS):
            last, ahead = chunk.rows - 1 - first, WEIGHT_ROWS * chunk.size
            product(chunk, first, 1, last, at, count, more, ahead)

    return part_of_all


def _part_by_part(part_of_all: Any) -> Any:
    """A Numba function: a chunk's products, a part of all rows before the next."""

    @inner
    def multiply(chunk: Chunk) -> None:
        parts, at = part_count(chunk.size), np.int64(0)
        for part in range(parts):
            count = part_end(chunk.size, part, parts) - at
            part_of_all(chunk, at, count, part)
            at += count

    return multiply


_rows, _rows_bf16 = rows_of(bfloat16=False), rows_of(bfloat16=True)
_one, _one_bf16 = (_to_their_ends(row_of(bfloat16=narrow)) for narrow in (False, True))
_few, _few_bf16 = _to_their_ends(_rows), _to_their_ends(_rows_bf16)
_part = _part_of_all(_rows)
_many, _many_bf16 = _part_by_part(_part), _part_by_part(_part_of_all(_rows_bf16))


@inner
def multiply(chunk: Chunk) -> None:
    """All products of a chunk of float32. All sums run over the same parts in the same order."""
    if chunk.tokens == 1:
        _one(chunk)
    elif chunk.tokens <= FEW_TOKENS:
        _few(chunk)
    else:
        _many(chunk)


@inner
def multiply_bf16(chunk: Chunk, scratch: int) -> None:
    """The same of bfloat16."""
    if chunk.tokens == 1:
        _one_bf16(chunk)
    elif chunk.tokens <= FEW_TOKENS:
        _few_bf16(chunk)
    elif MULTIPLIES_PAIRS:
        _many_bf16(chunk)
    else:
        _many_widened(chunk, scratch)


@inner
def _room(size: int) -> int:
    """Numbers from one row of scratch to the next. Rows do not lie a power of two apart."""
    return (min(size, PART) + STEP - 1) // STEP * STEP + LINE // 4


@inner
def scratch_bytes(rows: int, tokens: int, size: int) -> int:
    """What `multiply_bf16` needs for chunks with at most so many rows."""
    if MULTIPLIES_PAIRS or tokens <= FEW_TOKENS:
        return 0
    return 4 * (rows + tokens) * _room(size)


@inner
def _many_widened(chunk: Chunk, scratch: int) -> None:
    """Part by part, widened to float32 first."""
    parts, at, room = part_count(chunk.size), np.int64(0), _room(chunk.size)
    weights, out, width = scratch + 4 * chunk.tokens * room, chunk.out, chunk.width
    wide = Chunk(weights, scratch, out, chunk.rows, chunk.tokens, room, room, width)
    for part in range(parts):
        count = part_end(chunk.size, part, parts) - at
        _widen(chunk.x + 2 * at, chunk.length, scratch, room, chunk.tokens, count)
        _widen(chunk.weights + 2 * at, chunk.size, weights, room, chunk.rows, count)
        _part(wide, np.int64(0), (count + STEP - 1) // STEP * STEP, part)
        at += count


@inner
def _widen(source: int, length: int, target: int, room: int, rows: int, count: int) -> None:
    """`count` numbers of each of some rows of bfloat16, as float32 in pairs."""
    for row in range(rows):
        start, place = source + 2 * row * length, target + 4 * row * room
        for at in range(0, count, STEP):
            widen_pairs(start + 2 * at, count - at, place + 4 * at)
