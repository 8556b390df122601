"""Sums of a row of x over groups of columns: what the minimums of codes are multiplied with.

The thread that a call comes from makes them before the products begin, once for all panels. XLA
would need an operation of its own before each product.
"""

from typing import Any

from cpu_kernels.compiling.jit import inner
from cpu_kernels.quantized.kinds import FIELDS
from cpu_kernels.simd.structs import int32s
from cpu_kernels.simd.vectors import LANES, add, put, total_in_order
from cpu_kernels.simd.widen import item_bytes, widen

GROUP, MINIMUMS = 1, 3  # fields of a kind


@inner
def _group_of(call: Any) -> int:
    """Columns of a group with minimums. All kinds that have minimums have such groups."""
    group = 0
    for kind in range(call.forms.shape[0]):
        form = int32s(call.forms.address + 4 * FIELDS * kind)
        if form[MINIMUMS] != 0:
            group = form[GROUP]
    return group


@inner
def write_sums(call: Any, rows: int) -> None:
    """Writes the sums of the first rows to `call.sums`, float32 [T, groups].

    Each sum is made in the same order, whatever the other rows hold. There are no groups if no kind
    has minimums.
    """
    groups, columns, kind = call.sums.shape[1], call.x.shape[1], call.x.dtype
    if groups == 0:
        return
    group, item = _group_of(call), item_bytes(kind)
    for row in range(rows):
        x, sums = call.x.address + item * columns * row, call.sums.address + 4 * groups * row
        for number in range(groups):
            first = group * number
            found = widen(kind, x + item * first)
            for at in range(first + LANES, min(first + group, columns), LANES):
                found = add(found, widen(kind, x + item * at))
            put(sums + 4 * number, total_in_order(found))
