"""Products in int8: weights with a scale for each row, and rows of x that are rounded to int8.

A product is a sum of whole numbers, which is exact, then times the row's scale, then times the
weight's. So it depends neither on the other rows nor on threads, nor on the processor.

A word of a panel has four codes, stored without sign as code + 128. The scales of a panel's rows
lie side by side as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Float, Float32, Int, UInt8

from cpu_kernels.linear.kernel import product_kernel
from cpu_kernels.linear.panels import pack_panels, panel_shape
from cpu_kernels.linear.w8a8_rows import ZERO, check_size, round_rows
from cpu_kernels.linear.w8a8_tiles import multiply
from cpu_kernels.linear.weights import Weights, check_words, one_stack
from cpu_kernels.simd.micro_kernel import COLUMNS


@dataclass(frozen=True)
class W8A8Weights(Weights):
    """Weights of int8. Products round each row of x to int8.

    Attributes:
        panels, scales: packed by `pack_codes` and `pack_scales`.
    """

    kernel = "cpu_kernels.products_of_int8"
    axes = 3
    panels: UInt8[Array, "*stack panels words columns"]
    scales: Float32[Array, "*stack panels width"]

    def check(self, rows: int, size: int, parts: int) -> None:
        check_size(size)
        check_words(self.panels, rows, size, parts)

    def operands(self, x: Float[Array, "T in"], ends: Int[Array, " groups"]) -> Sequence[Array]:
        panels, scales = one_stack(self.panels, self.axes), one_stack(self.scales, 2)
        return *round_rows(x, ends), panels, scales


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


product_kernel(W8A8Weights.kernel, multiply, operands="x scales firsts panels panel_scales")
