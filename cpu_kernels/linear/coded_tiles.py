"""One chunk of a product with codes: some panels with some rows of x, tile by tile.

The first tile decodes the codes in registers. If there are more tiles, it keeps the decoded words
of part of a panel in the thread's own memory, where the other tiles find them. All tiles compute
the same sums in the same order.

Without AVX-512 one row of x is multiplied with two panels at once: each sum waits for the one
before it, and the sums of one narrow panel are too few to fill that time.
"""

from typing import Any, NamedTuple

from cpu_kernels.calls.threads import range_of
from cpu_kernels.compiling.jit import inner
from cpu_kernels.linear.chunks import Chunk
from cpu_kernels.linear.coded_kinds import FIELDS, FLOAT8, INT8, TABLE, WHOLE
from cpu_kernels.linear.tiles import ROW_COUNTS, by_rows
from cpu_kernels.simd.coded_micro_kernel import Tile, micro_kernel_of
from cpu_kernels.simd.coded_scales import FLOAT16, OUTER
from cpu_kernels.simd.coded_words import PERMUTES_16, Decoded, Float8, Int8, Table, Whole
from cpu_kernels.simd.micro_kernel import COLUMNS, ROWS, VECTORS
from cpu_kernels.simd.structs import int32s
from cpu_kernels.simd.words import Floats

CODES = (Table, Int8, Float8)
FEW_ROWS = ROW_COUNTS[3]  # a first tile of at most so many is the only one, and keeps nothing
PART_BYTES = 64 * 1024  # of decoded words: they stay in the second-level cache
PAIRS_PANELS = VECTORS == 1  # whether one row is multiplied with two panels at once
PLACE_BYTES, UNIT, VECTOR_BYTES = 8, 64, 64


class Codes(NamedTuple):
    """What a chunk is multiplied with.

    Attributes:
        panels: address of the matrix's bytes.
        places: address of the first panel's place.
        forms, tables: addresses of the kinds' forms and tables.
        size: columns of x.
        sums, sums_step: address of the sums of the first row of x, and bytes from row to row.
        scratch: address of PART_BYTES of the thread's own memory.
    """

    panels: int
    places: int
    forms: int
    tables: int
    size: int
    sums: int
    sums_step: int
    scratch: int


@inner
def _codes_of(call: Any, chunk: Chunk, scratch: int) -> Codes:
    sums_step = 4 * call.sums.shape[1]
    return Codes(
        call.panels.address + chunk.weight * call.panels.shape[1],
        call.places.address + PLACE_BYTES * chunk.panel,
        call.forms.address,
        call.tables.address,
        call.x.shape[1],
        call.sums.address + chunk.row * sums_step,
        sums_step,
        scratch,
    )


class Panel(NamedTuple):
    """One panel of a chunk.

    Attributes:
        outer: address of its outer scales and minimums, or 0.
        at: address of its first group.
        ahead: distance to the panel to prefetch, or 0.
        apart: distance to the next panel, which is multiplied at the same time; or 0.
        code, group, scales, minimums: the fields of its kind.
        head_bytes, column_bytes: bytes of a group's head, and of the codes of one column of x.
        table: address of its kind's table.
    """

    outer: int
    at: int
    ahead: int
    apart: int
    code: int
    group: int
    scales: int
    minimums: int
    head_bytes: int
    column_bytes: int
    table: int


@inner
def _panel_of(chunk: Chunk, codes: Codes, number: int) -> Panel:
    place = int32s(codes.places + PLACE_BYTES * number)
    at, ahead, apart, following = codes.panels + UNIT * place[0], 0, 0, 1
    paired = PAIRS_PANELS and chunk.tokens == 1 and number + 1 < chunk.num_panels
    if paired and place[1] == place[3]:
        apart, following = UNIT * (place[2] - place[0]), 2
    if number + following < chunk.num_panels or chunk.goes_on:
        ahead = UNIT * (place[2 * following] - place[0])
    form = int32s(codes.forms + 4 * FIELDS * place[1])
    code, group, scales, minimums = form[0], form[1], form[2], form[3]
    head, outer = COLUMNS * (2 if scales == FLOAT16 else 4) * (1 + minimums), 0
    if form[4] != 0:
        outer, at = at, at + head * ((codes.size + OUTER - 1) // OUTER)
        head = COLUMNS * (1 + minimums)
    column = COLUMNS if code in (INT8, FLOAT8) else COLUMNS // 2
    table = codes.tables + VECTOR_BYTES * place[1]
    return Panel(outer, at, ahead, apart, code, group, scales, minimums, head, column, table)


def multiply_of(words: type[Floats]) -> Any:
    """Makes a Numba function that multiplies a chunk with rows of x in such words.

    Its arguments are the call, the chunk and the address of PART_BYTES.
    """
    item = words.step // words.numbers  # bytes of a number
    most = PART_BYTES // (item * COLUMNS)  # columns of x in a part
    first, other = _first_tile_of(words), _other_tile_of(words)

    @inner
    def multiply(call: Any, chunk: Chunk, scratch: int) -> None:
        codes, number = _codes_of(call, chunk, scratch), 0
        while number < chunk.num_panels:
            panel = _panel_of(chunk, codes, number)
            groups, parts = (codes.size + panel.group - 1) // panel.group, 1
            if chunk.tokens > FEW_ROWS:
                at_once = most // panel.group
                parts = (groups + at_once - 1) // at_once
            for part in range(parts):
                begin, end = range_of(groups, part, parts)
                here = Part(begin, end - begin, part, item)
                first(chunk, codes, panel, number, here)
                for token in range(ROWS, chunk.tokens, ROWS):
                    other(chunk, codes, panel, number, here, token)
            number += 1 if panel.apart == 0 else 2

    return multiply


class Part(NamedTuple):
    """Some groups of a panel.

    Attributes:
        first, groups: the first of them, and how many there are.
        number: number of this part; the products of the first one begin at 0.
        item: bytes of a number of x.
    """

    first: int
    groups: int
    number: int
    item: int


@inner
def _tile_of(
    chunk: Chunk,
    codes: Codes,
    panel: Panel,
    number: int,
    part: Part,
    token: int,
    line: int,
    line_step: int,
) -> Tile:
    """The arguments of a micro-kernel that multiplies rows from `token` on.

    Args:
        line, line_step: address of the first group's codes, and step to the next group's.
    """
    step = panel.head_bytes + panel.group * panel.column_bytes
    column = part.first * panel.group
    return Tile(
        chunk.x + token * chunk.x_step + part.item * column,
        chunk.x_step,
        min(ROWS, chunk.tokens - token) - 1,
        line,
        line_step,
        panel.at + part.first * step,
        step,
        panel.outer,
        panel.group,
        min(part.groups * panel.group, codes.size - column),
        column,
        panel.scales,
        panel.minimums,
        panel.table,
        codes.sums + token * codes.sums_step + 4 * part.first,
        codes.sums_step,
        chunk.out + token * chunk.out_step + 4 * COLUMNS * number,
        chunk.out_step,
        chunk.columns - COLUMNS * number,
        min(part.number, 1),
        panel.ahead if token == 0 else 0,
        panel.apart,
        codes.scratch,
    )


def _first_tile_of(words: type[Floats]) -> Any:
    """Makes a Numba function that multiplies part of a panel with the first rows of a chunk."""

    def times(codes: type[Decoded]) -> Any:
        kernels = [micro_kernel_of(n, codes, words, keep=n > FEW_ROWS) for n in ROW_COUNTS]
        pair = micro_kernel_of(1, codes, words, panels=2) if PAIRS_PANELS else kernels[0]
        return _of_rows(by_rows(kernels), pair)

    of_table, of_int8, of_float8 = map(times, CODES)
    # Where permutations look up 16 numbers, no panel is held as WHOLE: nothing is compiled for it.
    of_whole = of_table if PERMUTES_16 else times(Whole)

    @inner
    def first(chunk: Chunk, codes: Codes, panel: Panel, number: int, part: Part) -> None:
        step = panel.head_bytes + panel.group * panel.column_bytes
        line = panel.at + part.first * step + panel.head_bytes
        tile = _tile_of(chunk, codes, panel, number, part, 0, line, step)
        if panel.code == TABLE:
            of_table(tile)
        elif panel.code == WHOLE:
            of_whole(tile)
        elif panel.code == INT8:
            of_int8(tile)
        else:
            of_float8(tile)

    return first


def _other_tile_of(words: type[Floats]) -> Any:
    """Makes a Numba function that multiplies what the first tile has decoded with more rows."""
    three, four, five = (micro_kernel_of(rows, Decoded, words) for rows in ROW_COUNTS[2:])

    @inner
    def other(
        chunk: Chunk, codes: Codes, panel: Panel, number: int, part: Part, token: int
    ) -> None:
        step = part.item * COLUMNS * panel.group
        tile = _tile_of(chunk, codes, panel, number, part, token, codes.scratch, step)
        if tile.last >= ROW_COUNTS[3]:
            five(tile)
        elif tile.last >= ROW_COUNTS[2]:
            four(tile)
        else:
            three(tile)

    return other


def _of_rows(run: Any, pair: Any) -> Any:
    """Makes a Numba function that takes the micro-kernel for a tile's rows and panels."""

    @inner
    def multiply(tile: Tile) -> None:
        if PAIRS_PANELS and tile.apart != 0:
            pair(tile)
        else:
            run(tile.last + 1, (tile,))

    return multiply
