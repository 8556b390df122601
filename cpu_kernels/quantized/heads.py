"""The scales and minimums of a panel's rows, side by side, as the micro-kernel reads them."""

from typing import NamedTuple

import numpy as np

from cpu_kernels.quantized.kinds import Coded, PanelKind, padded
from cpu_kernels.simd.coded_scales import FLOAT16, OUTER
from cpu_kernels.simd.micro_kernel import COLUMNS


class Chosen(NamedTuple):
    """Some panels of a matrix.

    Attributes:
        places: where they begin, in units of 64 bytes.
        firsts, counts: the first row of each, and its number of rows; int64.
    """

    places: np.ndarray
    firsts: np.ndarray
    counts: np.ndarray


def heads_of(rows: np.ndarray, coded: Coded, kind: PanelKind, chosen: Chosen) -> np.ndarray:
    """The heads of all groups of some panels: uint8 [panels, bytes].

    Args:
        rows: of the matrix, records as `pack` takes them.
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
