"""One chunk of a product: some panels of weights with some rows of x, tile by tile.

The first tiles read a panel from memory; the others find it in the second-level cache. Meanwhile
the next panel is prefetched.
"""

from typing import Any, NamedTuple

from cpu_kernels.calls.ranges import range_of
from cpu_kernels.compiling.jit import inner
from cpu_kernels.linear.panels import STEP
from cpu_kernels.simd.micro_kernel import COLUMNS, ROWS, VECTORS, micro_kernel_of
from cpu_kernels.simd.vectors import BYTES
from cpu_kernels.simd.words import Floats

# Tiles exist for these numbers of rows of x. With fewer rows a tile repeats the last row.
ROW_COUNTS = (1, 2, 4, 8, ROWS) if ROWS == 12 else (1, 2, 3, 4, ROWS)
PART = 768  # words of a row multiplied at once, so that a tile of x stays in the first-level cache


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
    """Makes a Numba function that multiplies a chunk. All sums run over a row in the same order."""
    tile = _tile_of(words)

    @inner
    def multiply(chunk: Chunk) -> None:
        tiles = (chunk.tokens + ROWS - 1) // ROWS
        parts = max((chunk.words + PART - 1) // PART, 1)
        for panel in range(chunk.num_panels):
            for part in range(parts):
                for number in range(tiles):
                    tile(chunk, panel, part, parts, number)

    return multiply


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
    def tile(chunk: Chunk, panel: int, part: int, parts: int, number: int) -> None:
        at, until = range_of(chunk.words, part, parts)
        token, depth = number * ROWS, until - at
        rows, columns = min(ROWS, chunk.tokens - token), chunk.columns - COLUMNS * panel
        left = chunk.x + token * chunk.x_step + step * at
        right = chunk.panels + panel * chunk.panel_step + STEP * at
        out = chunk.out + token * chunk.out_step + 4 * COLUMNS * panel
        ahead, ahead_step = ahead_of(chunk, right, panel, depth, number)
        operands = (left, chunk.x_step, rows - 1, right, STEP, BYTES, depth)
        results = (out, chunk.out_step, columns, part, ahead, ahead_step)
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
