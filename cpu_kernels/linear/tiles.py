"""One chunk of a product with panels of words: some panels with some rows of x, tile by tile.

The first tiles read a panel from memory; the others find it in the second-level cache. Meanwhile
the next panel is prefetched.
"""

from typing import Any, NamedTuple

from cpu_kernels.calls.threads import range_of
from cpu_kernels.compiling.jit import inlined, inner
from cpu_kernels.linear.chunks import Chunk
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


class Panels(NamedTuple):
    """The panels of a chunk.

    Attributes:
        start, step: address of the first, and bytes from one to the next.
        words: number of words in a row of x.
    """

    start: int
    step: int
    words: int


@inner
def panels_of(call: Any, chunk: Chunk, word: int) -> Panels:
    """The panels of a chunk; `word` is the number of bytes in a word of x."""
    step = STEP * call.panels.shape[2]
    return Panels(call.panels.address + step * chunk.panel, step, chunk.x_step // word)


def multiply_of(words: type[Floats]) -> Any:
    """Makes a Numba function that multiplies a chunk. All sums run over a row in the same order.

    Its arguments:
        call: has the operand `leaves`: 1, or a power of two. Rows are cut into so many equal
            leaves, whose sums are added as a tree: (0 + 1) + (2 + 3). So the first half of the
            leaves, multiplied alone, gives the same bits as it adds here.
        chunk: what it multiplies.
        slots: address of SLOTS_BYTES, if there are several leaves.
    """
    tile, word = _tile_of(words), words.step
    in_leaves = _in_leaves_of(tile)

    @inner
    def multiply(call: Any, chunk: Chunk, slots: int) -> None:
        tiles = (chunk.tokens + ROWS - 1) // ROWS
        panels, leaves = panels_of(call, chunk, word), call.leaves.int32[0]
        if leaves > 1:
            for panel in range(chunk.num_panels):
                for number in range(tiles):
                    in_leaves(chunk, panels, panel, number, leaves, slots)
            return
        parts = max((panels.words + PART - 1) // PART, 1)
        for panel in range(chunk.num_panels):
            for part in range(parts):
                at, until = range_of(panels.words, part, parts)
                for number in range(tiles):
                    sums = tile_of(chunk, panel, number)
                    tile(chunk, panels, panel, number, at, until, part, sums)

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
    def in_leaves(
        chunk: Chunk, panels: Panels, panel: int, number: int, leaves: int, slots: int
    ) -> None:
        words, rows = panels.words // leaves, min(ROWS, chunk.tokens - number * ROWS)
        parts, depth = max((words + PART - 1) // PART, 1), 0
        for leaf in range(leaves):
            ended, more = leaf, 0
            if parts == 1 and leaf & 1:  # added as it is written
                depth, ended, more = depth - 1, leaf >> 1, 1
            own = _slot(chunk, panel, number, slots, depth)
            for part in range(parts):
                at, until = range_of(words, part, parts)
                first, last = leaf * words + at, leaf * words + until
                tile(chunk, panels, panel, number, first, last, more + part, own)
            while ended & 1:  # the second half of a subtree
                depth -= 1
                to = _slot(chunk, panel, number, slots, depth)
                _add_tile(to, _slot(chunk, panel, number, slots, depth + 1), rows)
                ended >>= 1
            depth += 1

    return in_leaves


@inner
def ahead_of(
    chunk: Chunk, panels: Panels, right: int, panel: int, depth: int, number: int
) -> tuple[int, int]:
    """The part of the next panel that a tile prefetches: its address, and bytes for each word.

    A single tile prefetches the whole panel; otherwise the first tiles prefetch a vector of each
    word.
    """
    following = right + panels.step
    if (panel + 1 == chunk.num_panels and not chunk.goes_on) or number >= VECTORS:
        return right, 0
    if chunk.tokens <= ROWS:
        return following, STEP
    return following + number * depth * BYTES, BYTES


def by_rows(kernels: list[Any]) -> Any:
    """Makes a Numba function that takes, of micro-kernels for ROW_COUNTS, the one for some rows."""
    one, two, three, four, five = kernels

    @inlined
    def run(rows: int, arguments: Any) -> None:
        if rows > ROW_COUNTS[3]:
            five(*arguments)
        elif rows > ROW_COUNTS[2]:
            four(*arguments)
        elif rows > ROW_COUNTS[1]:
            three(*arguments)
        elif rows > ROW_COUNTS[0]:
            two(*arguments)
        else:
            one(*arguments)

    return run


def _tile_of(words: type[Floats]) -> Any:
    """Makes a Numba function that multiplies one tile: part of a panel's words, with some rows."""
    run = by_rows([micro_kernel_of(rows, words) for rows in ROW_COUNTS])
    step = words.step

    @inner
    def tile(
        chunk: Chunk,
        panels: Panels,
        panel: int,
        number: int,
        at: int,
        until: int,
        more: int,
        sums: Tile,
    ) -> None:
        token, depth = number * ROWS, until - at
        rows = min(ROWS, chunk.tokens - token)
        left = chunk.x + token * chunk.x_step + step * at
        right = panels.start + panel * panels.step + STEP * at
        ahead = ahead_of(chunk, panels, right, panel, depth, number)
        operands = (left, chunk.x_step, rows - 1, right, STEP, BYTES, depth)
        run(rows, (*operands, sums.at, sums.step, sums.columns, more, *ahead))

    return tile
