"""Where an adapter's arrays are in a call, and which rows are its own.

Calls have the operands ranks, layer, order and starts; those that multiply with A have a, and those
that multiply with B have b and halves. The package's docstring says what they hold.
"""

from typing import Any, NamedTuple

from cpu_kernels.compiling.jit import inner
from cpu_kernels.low_rank.streams import PANEL, ROWS, Rows
from cpu_kernels.simd.structs import int32s
from cpu_kernels.simd.vectors import LANES
from cpu_kernels.simd.widen import item_bytes


class Tile(NamedTuple):
    """Up to four rows of one slot: the slot, and where they are in `order`."""

    slot: int
    first: int
    rows: int


@inner
def _index(call: Any, slot: int) -> int:
    """The number of a slot's arrays among those of all layers."""
    layers, slots = call.ranks.shape[0], call.ranks.shape[1]
    layer = min(max(call.layer.int32[0], 0), layers - 1)
    return layer * slots + slot - 1


@inner
def ranks_of(call: Any, slot: int) -> Any:
    """An adapter's rank and whether it has biases, for each part."""
    return int32s(call.ranks.address + 8 * call.ranks.shape[2] * _index(call, slot))


@inner
def a_of(call: Any, slot: int) -> int:
    """Address of a slot's A."""
    blocks, pairs = call.a.shape[2], call.a.shape[3]
    return call.a.address + item_bytes(call.a.dtype) * PANEL * pairs * blocks * _index(call, slot)


@inner
def b_of(call: Any, slot: int) -> int:
    """Address of a slot's B."""
    panels, ranks = call.b.shape[2], call.b.shape[3]
    return call.b.address + item_bytes(call.b.dtype) * PANEL * ranks * panels * _index(call, slot)


@inner
def blocks_of_part(call: Any) -> int:
    """R / 16."""
    return call.a.shape[2] // call.ranks.shape[2]


@inner
def ranks_held(call: Any) -> int:
    """Numbers of a row's A x: R for each part."""
    return LANES * call.a.shape[2]


@inner
def has_module(call: Any, slot: int) -> bool:
    """Whether an adapter changes anything in the layer."""
    ranks = ranks_of(call, slot)
    found = False
    for part in range(call.ranks.shape[2]):
        found = found or ranks[2 * part] > 0
    return found


@inner
def num_tiles(call: Any) -> int:
    """How many tiles all adapters' rows make: none where the adapter changes nothing."""
    tiles, starts = 0, call.starts.int32
    for slot in range(1, call.ranks.shape[1] + 1):
        rows = starts[slot + 1] - starts[slot]
        if rows > 0 and has_module(call, slot):
            tiles += (rows + ROWS - 1) // ROWS
    return tiles


@inner
def tile_of(call: Any, number: int) -> Tile:
    """The tile of this number."""
    found, first, count, before, starts = 1, 0, 0, 0, call.starts.int32
    for slot in range(1, call.ranks.shape[1] + 1):
        rows = starts[slot + 1] - starts[slot]
        if rows > 0 and has_module(call, slot):
            tiles = (rows + ROWS - 1) // ROWS
            if before <= number < before + tiles:
                found, first = slot, starts[slot] + ROWS * (number - before)
                count = min(ROWS, starts[slot + 1] - first)
            before += tiles
    return Tile(found, first, count)


@inner
def row_of(call: Any, first: int, count: int, number: int) -> int:
    """The row of x that is number `number` behind `first` in the order, or the last of `count`."""
    return call.order.int32[first + min(number, count - 1)]


@inner
def rows_at(call: Any, first: int, count: int, start: int, step: int) -> Rows:
    """The addresses of up to four rows, `step` bytes from one to the next."""
    return Rows(
        start + step * row_of(call, first, count, 0),
        start + step * row_of(call, first, count, 1),
        start + step * row_of(call, first, count, 2),
        start + step * row_of(call, first, count, 3),
        count,
    )


@inner
def side_by_side(start: int, step: int, count: int) -> Rows:
    """The addresses of up to four rows that follow each other."""
    last = count - 1
    return Rows(
        start,
        start + step * min(1, last),
        start + step * min(2, last),
        start + step * min(3, last),
        count,
    )
