"""Products in int8: weights with a scale for each row, and rows of x that are rounded to int8.

A product is a sum of whole numbers, which is exact, then times the row's scale, then times the
weight's. So it depends neither on the other rows nor on threads, nor on the processor.

A word of a panel has four codes, stored without sign as code + 128. The scales of a panel's rows
lie side by side as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float, Float32, Int, UInt8

from cpu_kernels.compiling.jit import inner
from cpu_kernels.linear.chunks import Chunk
from cpu_kernels.linear.panels import WORD_BYTES, pack_panels, panel_shape
from cpu_kernels.linear.product_kernel import product_kernel
from cpu_kernels.linear.tiles import ROW_COUNTS, Panels, ahead_of, by_rows, panels_of
from cpu_kernels.linear.w8a8_rows import ZERO, check_size, round_rows
from cpu_kernels.linear.weights import Weights, check_words, one_stack
from cpu_kernels.simd.byte_kernel import byte_kernel_of
from cpu_kernels.simd.byte_words import BYTE_WORDS
from cpu_kernels.simd.micro_kernel import COLUMNS, ROWS

_multiply_rows = by_rows([byte_kernel_of(rows, BYTE_WORDS) for rows in ROW_COUNTS])


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


class Scales(NamedTuple):
    """What belongs to the rows and panels of a chunk.

    Attributes:
        firsts, rows: addresses of the first row's first sum, and of its scale.
        panels: address of the first panel's scales.
    """

    firsts: int
    rows: int
    panels: int


@inner
def _multiply(call: Any, chunk: Chunk, memory: int) -> None:
    """All products of a chunk. Rows are whole: they stay in the first-level cache, or nearly so."""
    panels = panels_of(call, chunk, WORD_BYTES)
    scales = Scales(
        call.firsts.address + 4 * chunk.row,
        call.scales.address + 4 * chunk.row,
        call.panel_scales.address + 4 * COLUMNS * chunk.panel,
    )
    tiles = (chunk.tokens + ROWS - 1) // ROWS
    for panel in range(chunk.num_panels):
        for number in range(tiles):
            _tile(chunk, panels, scales, panel, number)


@inner
def _tile(chunk: Chunk, panels: Panels, scales: Scales, panel: int, number: int) -> None:
    """One panel with up to ROWS rows."""
    token = number * ROWS
    rows, columns = min(ROWS, chunk.tokens - token), chunk.columns - COLUMNS * panel
    right = panels.start + panel * panels.step
    of_rows = (scales.firsts + 4 * token, scales.rows + 4 * token)
    left = (chunk.x + token * chunk.x_step, chunk.x_step, rows - 1, *of_rows)
    weights = (right, scales.panels + 4 * COLUMNS * panel, panels.words)
    out = (chunk.out + token * chunk.out_step + 4 * COLUMNS * panel, chunk.out_step, columns)
    ahead = ahead_of(chunk, panels, right, panel, panels.words, number)
    _multiply_rows(rows, (*left, *weights, *out, *ahead))


product_kernel(W8A8Weights.kernel, _multiply, operands="x scales firsts panels panel_scales")
