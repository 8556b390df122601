"""Interleaves the codes of a panel's rows, eight columns at a time."""

import functools

from numba import njit

from cpu_kernels.compiling.jit import cached, inner
from cpu_kernels.simd.bytes import read_eight, read_one, write_short, write_word
from cpu_kernels.simd.memory import copy
from cpu_kernels.simd.structs import int64s

EIGHT = 8
NIBBLES = 0x000F000F000F000F  # of every other byte


@inner
def _codes(row: int, column: int, size: int) -> int:
    """Eight codes of a row, with zeros beyond its end."""
    if column + EIGHT <= size:
        return read_eight(row + column)
    found = 0
    for i in range(size - column):
        found |= read_one(row + column + i) << (EIGHT * i)
    return found


@inner
def _nibbles(codes: int) -> int:
    """Puts four codes, in every other byte, beside each other."""
    codes &= NIBBLES
    return (codes | codes >> 12 | codes >> 24 | codes >> 36) & 0xFFFF


@inner
def _pack_row(
    row: int, size: int, out: int, columns: int, bits: int, group: int, head_bytes: int, held: int
) -> None:
    """Writes a row's codes to a panel whose groups begin at `out`, which is the row's place."""
    column_bytes = columns * bits // 8
    for first in range(0, held, group):
        place = out + first // group * head_bytes + head_bytes
        for column in range(first, min(first + group, held), EIGHT):
            codes = _codes(row, column, size) if row != 0 else 0
            at = place + column * column_bytes
            if bits == 4:
                write_word(at, _nibbles(codes) | _nibbles(codes >> 8) << 16)
            else:
                for pair in range(4):
                    write_short(at + 2 * column_bytes * pair, codes >> (16 * pair))


@cached(functools.partial(njit, nogil=True), f"void({', '.join(['int64'] * 12)})")
def pack_codes(
    codes: int,
    step: int,
    size: int,
    firsts: int,
    counts: int,
    outs: int,
    panels: int,
    heads: int,
    head_bytes: int,
    group: int,
    bits: int,
    columns: int,
) -> None:
    """Writes panels of one kind, without Python's lock.

    Args:
        codes, step: address of the first row's codes, a byte each, and bytes to the next row's.
        size: codes in a row.
        firsts, counts: addresses of int64s: the first row of each panel, and its number of rows.
        outs: address of int64s: the address of each panel's first group.
        panels: number of panels.
        heads, head_bytes: address of the heads of all groups of all panels, and bytes of one.
        group: columns in a group.
        bits: of a code, 4 or 8.
        columns: rows of a full panel; those beyond `counts` get codes 0.
    """
    held = (size + 15) // 16 * 16
    groups, width = (held + group - 1) // group, 4 if bits == 4 else 2
    for panel in range(panels):
        out, first = int64s(outs)[panel], int64s(firsts)[panel]
        for number in range(groups):
            place = out + number * (head_bytes + group * columns * bits // 8)
            copy(place, heads + (panel * groups + number) * head_bytes, head_bytes)
        for i in range(columns):
            row = codes + (first + i) * step if i < int64s(counts)[panel] else 0
            _pack_row(row, size, out + width * i, columns, bits, group, head_bytes, held)
