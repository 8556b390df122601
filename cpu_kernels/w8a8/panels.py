"""Weights of int8 with a scale for each row, in the panels of `linear/panels.py`.

A word has four codes, stored without sign as code + 128. The scales of a panel's rows lie side by
side as well.
"""

import numpy as np

from cpu_kernels.linear.panels import pack_panels, panel_shape
from cpu_kernels.simd.micro_kernel import COLUMNS
from cpu_kernels.w8a8.rounding import ZERO, check_size


def codes_shape(rows: int, size: int, parts: int = 1) -> tuple[int, int, int]:
    """Shape of the codes of a weight [rows, size] in panels, as uint8; see `panel_shape`.

    Raises:
        ValueError: rows are longer than a product of bytes may be.
    """
    check_size(size)
    return panel_shape(rows, size, np.uint8, parts)


def scales_shape(rows: int, parts: int = 1) -> tuple[int, int]:
    """Shape of the scales: [panels, COLUMNS]."""
    return parts * -(-rows // (parts * COLUMNS)), COLUMNS


def pack_codes(codes: np.ndarray, out: np.ndarray, *, parts: int = 1) -> None:
    """Packs int8 codes [*stack, rows, size] into panels [*stack, *codes_shape(...)]."""
    pack_panels(codes.view(np.uint8) ^ np.uint8(ZERO), out, parts=parts)


def pack_scales(scales: np.ndarray, out: np.ndarray, *, parts: int = 1) -> None:
    """Packs scales [*stack, rows] into [*stack, *scales_shape(...)]; zeros follow the last one."""
    *stack, rows = scales.shape
    each = out.shape[-2] // parts * COLUMNS
    padded = np.zeros((*stack, parts, each), np.float32)
    padded[..., : rows // parts] = scales.reshape(*stack, parts, -1)
    panels = padded.reshape(*stack, parts, -1, COLUMNS)
    out[...] = panels.swapaxes(-3, -2).reshape(out.shape)
