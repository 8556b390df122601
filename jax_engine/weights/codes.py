"""The canonical form of quantised matrices: whatever a checkpoint's layout, rows of codes.

A number of a matrix is

    scale * meaning(code) + minimum                                   (`outer` is 0)
    outer scale * scale * meaning(code) + outer minimum * minimum     (otherwise)

Columns in a group share a scale and a minimum. Rows are records, so that a family's transforms,
which put matrices together and order their rows, do the same to rows of codes as to rows of
numbers.
"""

from typing import NamedTuple

import ml_dtypes
import numpy as np

INT8, E4M3 = "int8", "float8_e4m3fn"


class Kind(NamedTuple):
    """How the rows of a matrix are coded.

    Attributes:
        code: what codes mean: a table of 16 numbers; or the dtype of their bits, INT8 or E4M3.
        group: number of columns that share a scale. The last group of a row may be shorter.
        minimums: whether groups have minimums.
        scale_dtype: "float16" if each scale and minimum is such a number, otherwise "float32".
        outer: number of columns that share an outer scale and minimum; 0: there are none. If there
            are, scales and minimums are whole numbers: K-quants.
        activations: the dtype to which the checkpoint says that rows of x are rounded, or None.
    """

    code: tuple[float, ...] | str
    group: int
    minimums: bool = False
    scale_dtype: str = "float32"
    outer: int = 0
    activations: str | None = None

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return 8 if isinstance(self.code, str) else 4

    def groups(self, size: int) -> int:
        """Number of groups in a row of `size` columns."""
        return -(-size // self.group)


def row_dtype(kinds: tuple[Kind, ...], size: int) -> np.dtype:
    """The record of a row of `size` columns in one of some kinds.

    Its fields are `kind` (an index into `kinds`), `codes` [size], and `scales`, `minimums`,
    `outer_scales` and `outer_minimums`, as many as the finest kind has; others use the first ones.
    """
    groups = max(kind.groups(size) for kind in kinds)
    lowest = max((groups if kind.minimums else 0) for kind in kinds)
    outer = max((-(-size // kind.outer) if kind.outer else 0) for kind in kinds)
    outer_lowest = max((outer if kind.outer and kind.minimums else 0) for kind in kinds)
    fields = [("kind", "u1"), ("codes", "u1", size), ("scales", "f4", groups)]
    fields += [("minimums", "f4", lowest), ("outer_scales", "f4", outer)]
    return np.dtype([*fields, ("outer_minimums", "f4", outer_lowest)])


def columns_of(rows: np.ndarray, kinds: tuple[Kind, ...], start: int, out: np.ndarray) -> None:
    """Writes the columns from `start` on of records into `out`, as many as its records have.

    Args:
        kinds: those that the records' `kind` is an index into. The columns must not begin or end
            within a group, unless all of them lie in it.
    """
    size = out.dtype["codes"].shape[0]
    out["kind"] = rows["kind"]
    out["codes"] = rows["codes"][..., start : start + size]
    for number, kind in enumerate(kinds):
        here = rows["kind"] == number
        if here.any():
            for prefix, group in (("", kind.group), ("outer_", kind.outer)):
                for name in (f"{prefix}scales", f"{prefix}minimums"):
                    if not group or (name.endswith("minimums") and not kind.minimums):
                        continue
                    first, count = start // group, -(-size // group)
                    chosen = rows[name][here][:, first : first + count]
                    held = out[name][here]
                    held[:, :count] = chosen
                    out[name][here] = held


def numbers(rows: np.ndarray, kinds: tuple[Kind, ...]) -> np.ndarray:
    """The numbers [..., size] that rows of codes [...] stand for, in float32."""
    out = np.empty((*rows.shape, *rows.dtype["codes"].shape), np.float32)
    for number, kind in enumerate(kinds):
        chosen = rows["kind"] == number
        out[chosen] = _numbers_of(rows[chosen], kind)
    return out


def _numbers_of(rows: np.ndarray, kind: Kind) -> np.ndarray:
    size = rows.dtype["codes"].shape[0]
    scales, lowest = groups_of(rows, kind)
    out: np.ndarray = _spread(scales, kind.group, size) * meaning(rows["codes"], kind)
    if lowest is not None:
        out += _spread(lowest, kind.group, size)
    return out


def groups_of(rows: np.ndarray, kind: Kind) -> tuple[np.ndarray, np.ndarray | None]:
    """Scale and minimum of each group of rows of a kind, with the outer ones multiplied in."""
    size = rows.dtype["codes"].shape[0]
    groups = kind.groups(size)
    scales, lowest = rows["scales"][..., :groups], rows["minimums"][..., :groups]
    if kind.outer:
        times = kind.outer // kind.group
        scales = scales * _spread(rows["outer_scales"], times, groups)
        if kind.minimums:
            lowest = lowest * _spread(rows["outer_minimums"], times, groups)
    return scales, lowest if kind.minimums else None


def meaning(codes: np.ndarray, kind: Kind) -> np.ndarray:
    """What codes stand for before they are scaled, in float32."""
    if kind.code == INT8:
        found = codes.view(np.int8)
    elif kind.code == E4M3:
        found = codes.view(ml_dtypes.float8_e4m3fn)
    else:
        found = np.array(kind.code, np.float32)[codes]
    return np.asarray(found, np.float32)


def _spread(shared: np.ndarray, group: int, size: int) -> np.ndarray:
    """One number for each column, from those of groups."""
    group = min(group, size)  # of a group that is longer than the row, no more is made
    return np.repeat(shared[..., : -(-size // group)], group, axis=-1)[..., :size]
