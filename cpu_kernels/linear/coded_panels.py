"""Panels of codes: COLUMNS rows side by side, as the micro-kernel reads them.

A panel holds group after group of columns of x: the scales of its rows, their minimums, and then
their codes, line by line (`simd/coded_words.py`). Before them it has the outer scales and minimums,
if there are any, block after block. A matrix is one array of bytes. A second array has the place
of each panel: where it begins, in units of 64 bytes, and the index of its kind.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, UInt8
from numba import njit

from cpu_kernels.compiling.jit import cached, inner
from cpu_kernels.linear.coded_kinds import (
    INT8,
    Coded,
    PanelKind,
    padded,
    panel_bytes,
    panel_kinds,
)
from cpu_kernels.simd.coded_scales import FLOAT16, OUTER
from cpu_kernels.simd.memory import copy, read_eight, read_one, write_short, write_word
from cpu_kernels.simd.micro_kernel import COLUMNS
from cpu_kernels.simd.structs import int64s

UNIT = 64
EIGHT = 8
NIBBLES = 0x000F000F000F000F  # of every other byte


class Chosen(NamedTuple):
    """Some panels of a matrix.

    Attributes:
        places: where they begin, in units of 64 bytes.
        firsts, counts: the first row of each, and its number of rows; int64.
    """

    places: np.ndarray
    firsts: np.ndarray
    counts: np.ndarray


def num_panels(rows: int, parts: int = 1) -> int:
    """Panels of a matrix of `rows` rows that consists of `parts` matrices of equally many rows."""
    return parts * -(-rows // (parts * COLUMNS))


def places_of(
    kinds: Sequence[PanelKind], chosen: np.ndarray, size: int, *, parts: int = 1
) -> np.ndarray:
    """The places of a matrix's panels: int32 [panels, 2].

    Args:
        kinds: how panels may be held.
        chosen: index of the kind of each row of the matrix.
        size: columns of a row.
        parts: number of matrices with equally many rows that the matrix consists of. Their panels
            alternate.

    Raises:
        ValueError: rows of one panel have different kinds.
    """
    rows = np.asarray(chosen, np.int32)
    firsts, counts = panel_rows(len(rows), parts)
    lanes = np.minimum(np.arange(COLUMNS), counts[:, None] - 1)
    of_panels = rows[firsts[:, None] + lanes]
    used = of_panels[:, 0]
    for panel in np.flatnonzero((of_panels != used[:, None]).any(axis=1)):
        raise ValueError(
            f"the {COLUMNS} rows of a panel must have one kind, got "
            f"{np.unique(of_panels[panel]).tolist()} in rows {firsts[panel]} to "
            f"{firsts[panel] + counts[panel] - 1}"
        )
    sizes = np.array([panel_bytes(kind, size) for kind in kinds], np.int64)[used]
    starts = np.cumsum(sizes) - sizes
    return np.stack([starts // UNIT, used], -1).astype(np.int32)


def panel_rows(rows: int, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each panel of a matrix, and the number of its rows."""
    each, panels = rows // parts, np.arange(num_panels(rows, parts))
    starts = panels // parts * COLUMNS
    return panels % parts * each + starts, np.minimum(COLUMNS, each - starts)


def matrix_bytes(kinds: Sequence[PanelKind], places: np.ndarray, size: int) -> int:
    """Bytes of a matrix whose panels have these places."""
    start, kind = places[-1].tolist() if len(places) else (0, None)
    return start * UNIT + (0 if kind is None else panel_bytes(kinds[kind], size))


def pack(
    rows: np.ndarray,
    kinds: Sequence[Coded],
    panels: np.ndarray,
    places: np.ndarray,
    *,
    parts: int = 1,
) -> None:
    """Packs one matrix, in the calling thread and mostly without Python's lock.

    Args:
        rows: records [rows] with the fields `kind` (an index into `kinds`), `codes` [size] (a byte
            each), `scales`, `minimums`, `outer_scales` and `outer_minimums`.
        kinds: how rows may be coded.
        panels: uint8 [bytes], written to; bytes beyond the last panel are left as they are.
        places: int32 [panels, 2], written to.
        parts: number of matrices with equally many rows that the matrix consists of. Their panels
            alternate: the first of each, then the second of each, and so on.

    Raises:
        ValueError: rows of one panel have different kinds; a scale is not of the type that its kind
            says; or the arrays have other sizes.
    """
    size = rows.dtype["codes"].shape[0]
    held = panel_kinds(kinds, size)
    found = places_of(held, rows["kind"], size, parts=parts)
    needed = matrix_bytes(held, found, size)
    if places.shape != found.shape or panels.shape[0] < needed:
        raise ValueError(
            f"a matrix [{len(rows)}, {size}] needs places {found.shape} and {needed} bytes, "
            f"got {places.shape} and {panels.shape}"
        )
    places[:] = found
    firsts, counts = panel_rows(len(rows), parts)
    for number, kind in enumerate(held):
        mine = np.flatnonzero(found[:, 1] == number)
        if len(mine):
            chosen = Chosen(found[mine, 0], firsts[mine], counts[mine])
            _pack_kind(rows, kinds[number], kind, chosen, panels)


def _pack_kind(
    rows: np.ndarray, coded: Coded, kind: PanelKind, chosen: Chosen, panels: np.ndarray
) -> None:
    """Packs the panels of one kind."""
    codes = rows["codes"]
    size, firsts, counts = codes.shape[1], chosen.firsts, chosen.counts
    starts = UNIT * chosen.places.astype(np.int64)
    if kind.outer:
        outer = outer_of(rows, kind, chosen)
        for start, one in zip(starts, outer, strict=True):
            panels[start : start + one.size] = one
    heads = heads_of(rows, coded, kind, chosen)
    outs = panels.ctypes.data + starts + kind.outer_bytes(size)
    pack_codes(
        codes.ctypes.data,
        codes.strides[0],
        size,
        firsts.ctypes.data,
        counts.ctypes.data,
        outs.ctypes.data,
        len(firsts),
        heads.ctypes.data,
        kind.head_bytes,
        kind.group,
        kind.bits,
        COLUMNS,
    )


def heads_of(rows: np.ndarray, coded: Coded, kind: PanelKind, chosen: Chosen) -> np.ndarray:
    """The heads of all groups of some panels: uint8 [panels, bytes].

    Args:
        rows: the matrix's rows, records as `pack` takes them.
        coded, kind: how the panels' rows are coded, and how they are held.
        chosen: the panels.

    Raises:
        ValueError: a scale or minimum is no number of the type that holds it.
    """
    columns = np.arange(0, padded(rows.dtype["codes"].shape[0]), kind.group)
    names = [("scales", "outer_scales"), ("minimums", "outer_minimums")][: 1 + kind.minimums]
    values = []
    for name, outer in names:
        found = _of_panels(rows[name], chosen)[..., columns // coded.group]
        if coded.outer and not kind.outer:
            found *= _of_panels(rows[outer], chosen)[..., columns // coded.outer]
        values.append(found)
    return _side_by_side(values, np.dtype(np.int8) if kind.outer else _dtype(kind))


def outer_of(rows: np.ndarray, kind: PanelKind, chosen: Chosen) -> np.ndarray:
    """The outer scales and minimums of some panels: uint8 [panels, bytes]; as `heads_of`."""
    blocks = -(-padded(rows.dtype["codes"].shape[0]) // OUTER)
    names = ["outer_scales", "outer_minimums"][: 1 + kind.minimums]
    values = [_of_panels(rows[name], chosen)[..., :blocks] for name in names]
    return _side_by_side(values, _dtype(kind))


def _dtype(kind: PanelKind) -> np.dtype:
    return np.dtype(np.float16 if kind.scales == FLOAT16 else np.float32)


def _of_panels(values: np.ndarray, chosen: Chosen) -> np.ndarray:
    """Those of each panel's rows: [panels, COLUMNS, ...], with zeros for the rows it lacks."""
    lanes, counts = np.arange(COLUMNS), chosen.counts[:, None]
    found: np.ndarray = values[chosen.firsts[:, None] + np.minimum(lanes, counts - 1)]
    found[lanes >= counts] = 0
    return found


def _side_by_side(values: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """Values [panels, COLUMNS, groups], each, as a panel has them: [panels, bytes]."""
    held = [one.astype(dtype) for one in values]
    for one, same in zip(values, held, strict=True):
        if not np.array_equal(one, same, equal_nan=True):
            other = one[one != same][0]
            raise ValueError(f"scales and minimums must be numbers of {dtype.name}, got {other}")
    together = np.stack([one.swapaxes(1, 2) for one in held], 2)
    return np.ascontiguousarray(together).view(np.uint8).reshape(len(together), -1)


@inner
def _eight_codes(row: int, column: int, size: int) -> int:
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
            codes = _eight_codes(row, column, size) if row != 0 else 0
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
        bits: width of one code, 4 or 8.
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


def take_rows(
    panels: UInt8[Array, " bytes"], kind: PanelKind, rows: Int[Array, " T"], size: int
) -> Float[Array, "T size"]:
    """Rows [size] of a weight whose panels all have one kind, in float32.

    Row numbers are clipped to those of the panels: rows beyond the weight's last are zeros.
    """
    step = panel_bytes(kind, size)
    of_panels = panels[: panels.shape[0] // step * step].reshape(-1, step)
    rows = jnp.clip(rows, 0, of_panels.shape[0] * COLUMNS - 1)
    panel, lane = (rows // COLUMNS)[:, None], (rows % COLUMNS)[:, None]
    column = jnp.arange(size)[None]
    group, place = column // kind.group, column % kind.group
    start = kind.outer_bytes(size) + group * (kind.head_bytes + kind.group * kind.column_bytes)
    found = _taken_codes(of_panels, kind, panel, start + kind.head_bytes, place, lane)
    of_columns = (of_panels, kind, panel, start, column // OUTER, lane)
    scaled = _taken_scales(*of_columns, 0) * found
    return scaled + _taken_scales(*of_columns, 1) if kind.minimums else scaled


def _taken_codes(
    panels: Array, kind: PanelKind, panel: Array, start: Array, place: Array, lane: Array
) -> Array:
    """What the codes at some columns of a group stand for; the group's codes begin at `start`."""
    if kind.bits == 4:
        line, at = place // 8, place % 8
        byte = 4 * (COLUMNS * line + lane) + 2 * (at % 2) + at // 4
        code = panels[panel, start + byte] >> (4 * (at // 2 % 2)).astype(jnp.uint8) & 15
        return jnp.asarray(kind.table, jnp.float32)[code]
    line, at = place // 2, place % 2
    code = panels[panel, start + 2 * (COLUMNS * line + lane) + at]
    dtype = jnp.int8 if kind.code == INT8 else jnp.float8_e4m3fn
    return lax.bitcast_convert_type(code, dtype).astype(jnp.float32)


def _taken_scales(
    panels: Array,
    kind: PanelKind,
    panel: Array,
    start: Array,
    block: Array,
    lane: Array,
    which: int,
) -> Array:
    """The scale of some columns, whose groups begin at `start`; or with `which` 1 the minimum."""
    place = lane + COLUMNS * which
    outer = (block * (1 + kind.minimums) * COLUMNS + place) * kind.item
    wide = (outer if kind.outer else start + kind.item * place)[..., None]
    found = _number(panels[panel[..., None], wide + jnp.arange(kind.item)])
    if not kind.outer:
        return found
    small = lax.bitcast_convert_type(panels[panel, start + place], jnp.int8)
    return small.astype(jnp.float32) * found


def _number(held: Array) -> Array:
    """The float16 or float32 whose bytes are the last axis, as float32."""
    dtype = jnp.float16 if held.shape[-1] == 2 else jnp.float32
    return lax.bitcast_convert_type(held, dtype).astype(jnp.float32)
