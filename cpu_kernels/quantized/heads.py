"""The heads of groups: the scales and minimums of a panel's rows, side by side."""

import numpy as np

from cpu_kernels.quantized.kinds import FLOAT16, Coded, PanelKind, padded
from cpu_kernels.simd.micro_kernel import COLUMNS


def heads_of(
    rows: np.ndarray, coded: Coded, kind: PanelKind, firsts: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """The heads of all groups of some panels: uint8 [panels, groups, head bytes].

    Args:
        rows: of the matrix, records as `pack` takes them.
        coded, kind: how the panels' rows are coded, and how they are held.
        firsts, counts: the first row of each panel, and its number of rows.
    """
    lanes = np.arange(COLUMNS)
    chosen = firsts[:, None] + np.minimum(lanes, counts[:, None] - 1)
    beyond = lanes >= counts[:, None]
    dtype = np.float16 if kind.scales == FLOAT16 else np.float32
    size = rows.dtype["codes"].shape[0]
    fields = [("scales", "outer_scales")]
    fields += [("minimums", "outer_minimums")] if kind.minimums else []
    found = [_values(rows, coded, kind, size, *names) for names in fields]
    parts = []
    for values in found:
        of_panels = values.astype(dtype)[chosen]
        of_panels[beyond] = 0
        parts.append(of_panels.swapaxes(1, 2))
    return np.ascontiguousarray(np.stack(parts, 2)).view(np.uint8).reshape(len(firsts), -1)


def _values(
    rows: np.ndarray, coded: Coded, kind: PanelKind, size: int, name: str, outer: str
) -> np.ndarray:
    """The scales or minimums of the groups as they are held: [rows, groups]."""
    columns = np.arange(0, padded(size), kind.group)
    values: np.ndarray = rows[name][:, columns // coded.group]
    if coded.outer:
        values = values * rows[outer][:, columns // coded.outer]
    return values
