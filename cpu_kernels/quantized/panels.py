"""Packs matrices of codes into panels: COLUMNS rows side by side, as the micro-kernel reads them.

A panel holds group after group of columns of x: the scales of its rows, their minimums, and then
their codes, line by line (`codes.py`). Before them it has the outer scales and minimums, if there
are any, block after block. A matrix is one array of bytes. A second array has the place
of each panel: where it begins, in units of 64 bytes, and the index of its kind.
"""

from collections.abc import Sequence

import numpy as np

from cpu_kernels.quantized.heads import Chosen, heads_of, outer_of
from cpu_kernels.quantized.kinds import Coded, PanelKind, panel_bytes, panel_kinds
from cpu_kernels.quantized.packing import pack_codes
from cpu_kernels.simd.micro_kernel import COLUMNS

UNIT = 64


def num_panels(rows: int, parts: int = 1) -> int:
    """Panels of a matrix of `rows` rows that consists of `parts` matrices of equally many rows."""
    return parts * -(-rows // (parts * COLUMNS))


def places_of(
    kinds: Sequence[PanelKind], chosen: np.ndarray, size: int, *, parts: int = 1
) -> np.ndarray:
    """The places of a matrix's panels: int32 [panels, 2].

    Args:
        kinds: how panels may be held.
        chosen: of each row of the matrix, the index of its kind.
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
