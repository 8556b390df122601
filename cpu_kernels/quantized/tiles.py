"""One chunk of a product with codes: some panels with some rows of x, tile by tile.

With few rows the codes are decoded in registers, where they are multiplied. With more rows a part
of a panel is decoded once, into the thread's own memory, and all rows are multiplied with that.
Both compute the same sums in the same order.
"""

from typing import Any, NamedTuple

from cpu_kernels.calls.ranges import range_of
from cpu_kernels.compiling.jit import inner
from cpu_kernels.quantized.codes import Decoded, Float8, Int8, Table
from cpu_kernels.quantized.decode import decode_of
from cpu_kernels.quantized.kinds import FIELDS, FLOAT16, INT8, OUTER, TABLE
from cpu_kernels.quantized.micro_kernel import Tile, micro_kernel_of
from cpu_kernels.simd.micro_kernel import COLUMNS, ROWS
from cpu_kernels.simd.structs import int32s
from cpu_kernels.simd.words import Floats

CODES = (Table, Int8, Float8)
# Tiles exist for these numbers of rows of x. With fewer rows a tile repeats the last row.
FEW_ROWS = (1, 2, 4)
MANY_ROWS = (4, 8, ROWS) if ROWS == 12 else (2, 4, ROWS)
PART_BYTES = 32 * 1024  # of a panel, decoded at once: it stays in the first-level cache
PLACE_BYTES, UNIT, VECTOR_BYTES = 8, 64, 64


class Chunk(NamedTuple):
    """A chunk of a product.

    Attributes:
        panels: address of the matrix's bytes.
        places: address of the first panel's place.
        forms, tables: addresses of the kinds' forms and tables.
        num_panels: number of panels.
        goes_on: whether the same thread probably multiplies the panel after the last one.
        x, sums, out: addresses of the first row of x, of its sums, and of the first product.
        size: columns of x.
        columns: number of columns of out from the first panel to the weight's end.
        tokens: number of rows of x.
        x_step, sums_step, out_step: bytes from row to row.
        scratch: address of PART_BYTES of the thread's own memory.
    """

    panels: int
    places: int
    forms: int
    tables: int
    num_panels: int
    goes_on: bool
    x: int
    sums: int
    out: int
    size: int
    columns: int
    tokens: int
    x_step: int
    sums_step: int
    out_step: int
    scratch: int


class Panel(NamedTuple):
    """One panel of a chunk.

    Attributes:
        outer: address of its outer scales and minimums, or 0.
        at: address of its first group.
        ahead: distance to the next panel, or 0.
        code, group, scales, minimums: of its kind.
        head_bytes, column_bytes: bytes of a group's head, and of the codes of one column of x.
        table: address of its kind's table.
    """

    outer: int
    at: int
    ahead: int
    code: int
    group: int
    scales: int
    minimums: int
    head_bytes: int
    column_bytes: int
    table: int


@inner
def _panel_of(chunk: Chunk, number: int) -> Panel:
    place = int32s(chunk.places + PLACE_BYTES * number)
    at, ahead = chunk.panels + UNIT * place[0], 0
    if number + 1 < chunk.num_panels or chunk.goes_on:
        ahead = UNIT * (place[2] - place[0])
    form = int32s(chunk.forms + 4 * FIELDS * place[1])
    code, group, scales, minimums = form[0], form[1], form[2], form[3]
    head, outer = COLUMNS * (2 if scales == FLOAT16 else 4) * (1 + minimums), 0
    if form[4] != 0:
        outer, at = at, at + head * ((chunk.size + OUTER - 1) // OUTER)
        head = COLUMNS * (1 + minimums)
    column = COLUMNS // 2 if code == TABLE else COLUMNS
    table = chunk.tables + VECTOR_BYTES * place[1]
    return Panel(outer, at, ahead, code, group, scales, minimums, head, column, table)


def multiply_of(words: type[Floats]) -> Any:
    """Makes a Numba function that multiplies a chunk with rows of x in such words."""
    few, many = _few_rows_of(words), _many_rows_of(words)

    @inner
    def multiply(chunk: Chunk) -> None:
        for number in range(chunk.num_panels):
            panel = _panel_of(chunk, number)
            if chunk.tokens <= FEW_ROWS[2]:
                few(chunk, panel, number)
            else:
                many(chunk, panel, number)

    return multiply


@inner
def _group_bytes(panel: Panel) -> int:
    return panel.head_bytes + panel.group * panel.column_bytes


def _few_rows_of(words: type[Floats]) -> Any:
    """Makes a Numba function that multiplies a panel with the few rows of a chunk."""
    (t1, t2, t4), (i1, i2, i4), (f1, f2, f4) = (
        tuple(micro_kernel_of(rows, codes, words) for rows in FEW_ROWS) for codes in CODES
    )

    @inner
    def few(chunk: Chunk, panel: Panel, number: int) -> None:
        step, rows = _group_bytes(panel), chunk.tokens
        tile = Tile(
            chunk.x,
            chunk.x_step,
            rows - 1,
            panel.at + panel.head_bytes,
            step,
            panel.at,
            step,
            panel.outer,
            panel.group,
            chunk.size,
            0,
            panel.scales,
            panel.minimums,
            panel.table,
            chunk.sums,
            chunk.sums_step,
            chunk.out + 4 * COLUMNS * number,
            chunk.out_step,
            chunk.columns - COLUMNS * number,
            0,
            panel.ahead,
        )
        if panel.code == TABLE:
            if rows == 1:
                t1(tile)
            elif rows == 2:
                t2(tile)
            else:
                t4(tile)
        elif panel.code == INT8:
            if rows == 1:
                i1(tile)
            elif rows == 2:
                i2(tile)
            else:
                i4(tile)
        elif rows == 1:
            f1(tile)
        elif rows == 2:
            f2(tile)
        else:
            f4(tile)

    return few


def _many_rows_of(words: type[Floats]) -> Any:
    """Makes a Numba function that multiplies a panel with many rows of a chunk."""
    small, middle, large = (micro_kernel_of(rows, Decoded, words) for rows in MANY_ROWS)
    of_table, of_int8, of_float8 = (decode_of(codes, words) for codes in CODES)
    item = words.step // words.numbers  # bytes of a number, here and in x
    most = PART_BYTES // (item * COLUMNS)  # columns of x in a part

    @inner
    def decode(chunk: Chunk, panel: Panel, first: int, groups: int, left: int) -> None:
        step = _group_bytes(panel)
        codes = panel.at + first * step + panel.head_bytes
        given = (codes, step, panel.group, groups, left, panel.table, chunk.scratch, panel.ahead)
        if panel.code == TABLE:
            of_table(*given)
        elif panel.code == INT8:
            of_int8(*given)
        else:
            of_float8(*given)

    @inner
    def many(chunk: Chunk, panel: Panel, number: int) -> None:
        groups = (chunk.size + panel.group - 1) // panel.group
        at_once = most // panel.group
        parts = (groups + at_once - 1) // at_once
        tiles, step = (chunk.tokens + ROWS - 1) // ROWS, _group_bytes(panel)
        for part in range(parts):
            first, last = range_of(groups, part, parts)
            column = first * panel.group
            size = min(last * panel.group, chunk.size) - column
            decode(chunk, panel, first, last - first, size)
            for i in range(tiles):
                token = ROWS * i
                rows = min(ROWS, chunk.tokens - token)
                tile = Tile(
                    chunk.x + token * chunk.x_step + item * column,
                    chunk.x_step,
                    rows - 1,
                    chunk.scratch,
                    item * COLUMNS * panel.group,
                    panel.at + first * step,
                    step,
                    panel.outer,
                    panel.group,
                    size,
                    column,
                    panel.scales,
                    panel.minimums,
                    panel.table,
                    chunk.sums + token * chunk.sums_step + 4 * first,
                    chunk.sums_step,
                    chunk.out + token * chunk.out_step + 4 * COLUMNS * number,
                    chunk.out_step,
                    chunk.columns - COLUMNS * number,
                    min(part, 1),
                    0,
                )
                if rows > MANY_ROWS[1]:
                    large(tile)
                elif rows > MANY_ROWS[0]:
                    middle(tile)
                else:
                    small(tile)

    return many
