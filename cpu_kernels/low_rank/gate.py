"""B (A x) in the kernels of gated networks: added to products of gate and up before the gate.

Each panel of B has 16 rows of gate and the 16 rows of up that belong to them. The kernels have A x
as an operand. Their products with one panel of weights for gate and one for up are in the thread's
own memory, and what is added costs no way to memory and back.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int

from cpu_kernels.compiling.jit import inner
from cpu_kernels.low_rank.arrays import has_module, row_of, rows_at
from cpu_kernels.low_rank.expand import add_sums, expand_panel, half_of
from cpu_kernels.low_rank.streams import ROWS, SUMS, SUMS_BYTES
from cpu_kernels.simd.micro_kernel import COLUMNS
from cpu_kernels.simd.vectors import BYTES, LANES

OPERANDS = "shrunk b ranks halves order starts"  # of the kernels, behind their own


class Expand(NamedTuple):
    """What a gated product adds before its gate; the package's docstring has the arrays.

    Attributes:
        shrunk: A x, by `shrink`.
    """

    shrunk: Float32[Array, "T ranks"]
    b: Float[Array, "L slots panels ranks 32"]
    ranks: Int[Array, "L slots parts 2"]
    halves: Int[Array, "halves 3"]
    order: Int[Array, " T"]
    starts: Int[Array, " starts"]


def operands_of(expand: Expand | None) -> tuple[Array, ...]:
    """The kernels' operands: empty ones where nothing is added."""
    if expand is not None:
        return tuple(expand)
    floats, numbers = jnp.zeros, jnp.int32
    return (
        floats((0, 0)),
        floats((0, 0, 0, 0, 0)),
        floats((0, 0, 0, 0), numbers),
        floats((0, 3), numbers),
        floats(0, numbers),
        floats(0, numbers),
    )


@inner
def expand_bytes(call: Any) -> int:
    """Bytes for sums with a panel of B."""
    return SUMS_BYTES if call.order.shape[0] > 0 else 0


@inner
def add_expanded(call: Any, share: Any, pair: int, products: int, step: int, sums: int) -> None:
    """Adds what adapters add to the products of a share's rows with a panel of gate and one of up.

    Rows of a group are in slots of its own, every `groups`-th from the group's number on.

    Args:
        share: has the fields `group`, `row` and `end` of a product's `Share`.
        pair: number of the panels, COLUMNS wide, among those of the weight.
        products: address of the first row's products, rows of `step` bytes: gate's, then up's.
        sums: address of `expand_bytes`.
    """
    if call.order.shape[0] == 0:
        return
    starts, groups = call.starts.int32, call.ends.shape[0]
    for slot in range(1 + share.group, call.ranks.shape[1] + 1, groups):
        if starts[slot + 1] > starts[slot] and has_module(call, slot):
            for vector in range(COLUMNS // LANES):
                panel = pair * (COLUMNS // LANES) + vector
                if panel < call.b.shape[2]:
                    _add_panel(call, slot, panel, share, products + BYTES * vector, step, sums)


@inner
def _add_panel(
    call: Any, slot: int, panel: int, share: Any, products: int, step: int, sums: int
) -> None:
    """Adds a panel's sums to the products of those rows of a slot that a share has."""
    row, end = share.row, share.end
    starts, width = call.starts.int32, 4 * call.shrunk.shape[1]
    gate, up = half_of(call, slot, 2 * panel), half_of(call, slot, 2 * panel + 1)
    for first in range(starts[slot], starts[slot + 1], ROWS):
        count = min(ROWS, starts[slot + 1] - first)
        if row_of(call, first, count, 0) < end and row_of(call, first, count, ROWS) >= row:
            shrunk = rows_at(call, first, count, call.shrunk.address, width)
            expand_panel(call, slot, panel, shrunk, sums)
            for number in range(count):
                here = row_of(call, first, count, number)
                if row <= here < end:
                    place, found = products + step * (here - row), sums + SUMS * number
                    if gate.rank > 0:
                        add_sums(found, place, LANES)
                    if up.rank > 0:
                        add_sums(found + BYTES, place + 4 * COLUMNS, LANES)
