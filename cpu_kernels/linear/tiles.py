"""One chunk of a product: some panels of weights with some rows of x, tile by tile.

The first tiles read a panel from memory; the others find it in the second-level cache. Meanwhile
the next panel is prefetched.
"""

from typing import Any, NamedTuple

from cpu_kernels.calls.ranges import range_of
from cpu_kernels.compiling.jit import inner
from cpu_kernels.linear.panels import STEP
from cpu_kernels.simd.micro_kernel import COLUMNS, ROWS, VECTORS, micro_kernel_of
from cpu_kernels.simd.vectors import BYTES, LANES, add, load, load_some, store, store_some
from cpu_kernels.simd.words import Floats

# Tiles exist for these numbers of rows of x. With fewer rows a tile repeats the last row.
ROW_COUNTS = (1, 2, 4, 8, ROWS) if ROWS == 12 else (1, 2, 3, 4, ROWS)
PART = 768  # words of a row multiplied at once, so that a tile of x stays in the first-level cache
SLOT = ROWS * STEP  # bytes of a tile's sums
MOST_LEAVES = 8  # a power of two
SLOTS_BYTES = SLOT * MOST_LEAVES.bit_length()


class Chunk(NamedTuple):
    """A chunk of a product.

    Attributes:
        panels, x, out: addresses of the first panel, the first row of x and the first product.
        num_panels: number of panels.
        goes_on: whether the same thread probably multiplies the panel after the last one.
        columns: number of columns from the first panel to the weight's end.
        tokens, words: number of rows of x, and of words in each.
        panel_step, x_step, out_step: bytes from one panel to the next, and from row to row.
    """

    panels: int
    x: int
    out: int
    num_panels: int
    goes_on: bool
    columns: int
    tokens: int
    words: int
    panel_step: int
    x_step: int
    out_step: int


def multiply_of(words: type[Floats]) -> Any:
    """Makes a Numba function that multiplies a chunk. All sums run over a row in the same order.

    Its arguments:
        chunk: what it multiplies.
        leaves: 1, or a power of two: rows are cut into so many equal leaves, whose sums are added
            as a tree: (0 + 1) + (2 + 3). So the first half of the leaves, multiplied alone, gives
            the same bits as it adds here.
        slots: address of SLOTS_BYTES, if there are several leaves.
    """
    tile = _tile_of(words)
    in_leaves = _in_leaves_of(tile)

    @inner
    def multiply(chunk: Chunk, leaves: int, slots: int) -> None:
        tiles = (chunk.tokens + ROWS - 1) // ROWS
        if leaves > 1:
            for panel in range(chunk.num_panels):
                for number in range(tiles):
                    in_leaves(chunk, panel, number, leaves, slots)
            return
        parts = max((chunk.words + PART - 1) // PART, 1)
        for panel in range(chunk.num_panels):
            for part in range(parts):
                at, until = range_of(chunk.words, part, parts)
                for number in range(tiles):
                    tile(chunk, panel, number, at, until, part, tile_of(chunk, panel, number))

    return multiply


class Tile(NamedTuple):
    """Where the sums of a tile are: address of the first, bytes to the next row, and columns."""

    at: int
    step: int
    columns: int


@inner
def tile_of(chunk: Chunk, panel: int, number: int) -> Tile:
    """Where the products of a tile go."""
    first = chunk.out + number * ROWS * chunk.out_step + STEP * panel
    return Tile(first, chunk.out_step, chunk.columns - COLUMNS * panel)


@inner
def _slot(chunk: Chunk, panel: int, number: int, slots: int, depth: int) -> Tile:
    """Where sums of a tile wait that are `depth` away from the root of the tree."""
    if depth == 0:
        return tile_of(chunk, panel, number)
    return Tile(slots + SLOT * (depth - 1), STEP, COLUMNS)


@inner
def _add_tile(to: Tile, other: Tile, rows: int) -> None:
    for row in range(rows):
        for column in range(0, min(COLUMNS, to.columns), LANES):
            place, count = to.at + row * to.step + 4 * column, to.columns - column
            added = load(other.at + row * other.step + 4 * column)
            if count >= LANES:
                store(place, add(load(place), added))
            else:
                store_some(place, add(load_some(place, count), added), count)


def _in_leaves_of(tile: Any) -> Any:
    """Makes a Numba function that multiplies one tile, with all words, leaf by leaf."""

    @inner
    def in_leaves(chunk: Chunk, panel: int, number: int, leaves: int, slots: int) -> None:
        words, rows = chunk.words // leaves, min(ROWS, chunk.tokens - number * ROWS)
        parts, depth = max((words + PART - 1) // PART, 1), 0
        for leaf in range(leaves):
            ended, more = leaf, 0
            if parts == 1 and leaf & 1:  # added as it is written
                depth, ended, more = depth - 1, leaf >> 1, 1
            own = _slot(chunk, panel, number, slots, depth)
            for part in range(parts):
                at, until = range_of(words, part, parts)
                first, last = leaf * words + at, leaf * words + until
                tile(chunk, panel, number, first, last, more + part, own)
            while ended & 1:  # the second half of a subtree
                depth -= 1
                to = _slot(chunk, panel, number, slots, depth)
                _add_tile(to, _slot(chunk, panel, number, slots, depth + 1), rows)
                ended >>= 1
            depth += 1

    return in_leaves


@inner
def ahead_of(chunk: Chunk, right: int, panel: int, depth: int, number: int) -> tuple[int, int]:
    """The part of the next panel that a tile prefetches: its address, and bytes for each word.

    A single tile prefetches the whole panel; otherwise the first tiles prefetch a vector of each
    word.
    """
    following = right + chunk.panel_step
    if (panel + 1 == chunk.num_panels and not chunk.goes_on) or number >= VECTORS:
        return right, 0
    if chunk.tokens <= ROWS:
        return following, STEP
    return following + number * depth * BYTES, BYTES


def _tile_of(words: type[Floats]) -> Any:
    """Makes a Numba function that multiplies one tile: part of a panel's words, with some rows."""
    one, two, three, four, five = (micro_kernel_of(rows, words) for rows in ROW_COUNTS)
    step = words.step

    @inner
    def tile(
        chunk: Chunk, panel: int, number: int, at: int, until: int, more: int, sums: Tile
    ) -> None:
        token, depth = number * ROWS, until - at
        rows = min(ROWS, chunk.tokens - token)
        left = chunk.x + token * chunk.x_step + step * at
        right = chunk.panels + panel * chunk.panel_step + STEP * at
        ahead, ahead_step = ahead_of(chunk, right, panel, depth, number)
        operands = (left, chunk.x_step, rows - 1, right, STEP, BYTES, depth)
        results = (sums.at, sums.step, sums.columns, more, ahead, ahead_step)
        if rows > ROW_COUNTS[3]:
            five(*operands, *results)
        elif rows > ROW_COUNTS[2]:
            four(*operands, *results)
        elif rows > ROW_COUNTS[1]:
            three(*operands, *results)
        elif rows > ROW_COUNTS[0]:
            two(*operands, *results)
        else:
            one(*operands, *results)

    return tile
