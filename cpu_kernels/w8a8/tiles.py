"""One chunk of a product of bytes, tile by tile: as `linear/tiles.py`, but rows are not cut.

Rows of bytes are short enough to stay in the first-level cache whole, or nearly so.
"""

from typing import Any, NamedTuple

from cpu_kernels.compiling.jit import inner
from cpu_kernels.linear.chunks import Share
from cpu_kernels.linear.tiles import ROW_COUNTS, Chunk, ahead_of
from cpu_kernels.simd.byte_kernel import byte_kernel_of
from cpu_kernels.simd.byte_words import BYTE_WORDS
from cpu_kernels.simd.micro_kernel import COLUMNS, ROWS

_one, _two, _three, _four, _five = (byte_kernel_of(rows, BYTE_WORDS) for rows in ROW_COUNTS)


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
def scales_of(call: Any, share: Share, parts: int) -> Scales:
    """The scales of a work item's chunk; `parts` as in `chunk_of`."""
    stack, groups = call.panels, call.ends.shape[0]
    layer = min(max(call.layer.int32[0], 0), stack.shape[0] // groups - 1)
    panel = (layer * groups + share.group) * stack.shape[1] + parts * share.panel
    return Scales(
        call.firsts.address + 4 * share.row,
        call.scales.address + 4 * share.row,
        call.panel_scales.address + 4 * COLUMNS * panel,
    )


@inner
def multiply(chunk: Chunk, scales: Scales) -> None:
    """All products of a chunk."""
    tiles = (chunk.tokens + ROWS - 1) // ROWS
    for panel in range(chunk.num_panels):
        for number in range(tiles):
            _tile(chunk, scales, panel, number)


@inner
def _tile(chunk: Chunk, scales: Scales, panel: int, number: int) -> None:
    """One panel with up to ROWS rows."""
    token = number * ROWS
    rows, columns = min(ROWS, chunk.tokens - token), chunk.columns - COLUMNS * panel
    right = chunk.panels + panel * chunk.panel_step
    of_rows = (scales.firsts + 4 * token, scales.rows + 4 * token)
    left = (chunk.x + token * chunk.x_step, chunk.x_step, rows - 1, *of_rows)
    weights = (right, scales.panels + 4 * COLUMNS * panel, chunk.words)
    out = (chunk.out + token * chunk.out_step + 4 * COLUMNS * panel, chunk.out_step, columns)
    ahead = ahead_of(chunk, right, panel, chunk.words, number)
    if rows > ROW_COUNTS[3]:
        _five(*left, *weights, *out, *ahead)
    elif rows > ROW_COUNTS[2]:
        _four(*left, *weights, *out, *ahead)
    elif rows > ROW_COUNTS[1]:
        _three(*left, *weights, *out, *ahead)
    elif rows > ROW_COUNTS[0]:
        _two(*left, *weights, *out, *ahead)
    else:
        _one(*left, *weights, *out, *ahead)
