"""One chunk of a product of bytes, tile by tile: as `tiles.py`, but rows are not cut.

Rows of bytes are short enough to stay in the first-level cache whole, or nearly so.
"""

from typing import Any, NamedTuple

from cpu_kernels.compiling.jit import inner
from cpu_kernels.linear.chunks import Chunk
from cpu_kernels.linear.panels import WORD_BYTES
from cpu_kernels.linear.tiles import ROW_COUNTS, Panels, ahead_of, by_rows, panels_of
from cpu_kernels.simd.byte_kernel import byte_kernel_of
from cpu_kernels.simd.byte_words import BYTE_WORDS
from cpu_kernels.simd.micro_kernel import COLUMNS, ROWS

_multiply_rows = by_rows([byte_kernel_of(rows, BYTE_WORDS) for rows in ROW_COUNTS])


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
def multiply(call: Any, chunk: Chunk, memory: int) -> None:
    """All products of a chunk. The call has the operands scales, firsts and panel_scales."""
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
