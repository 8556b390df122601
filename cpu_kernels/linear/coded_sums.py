"""Sums of a row of x over groups of columns: what the minimums of codes are multiplied with.

The thread that a call comes from makes them before the products begin, once for all panels. XLA
would need an operation of its own before each product. The other threads wait for these sums. So
they must be quick: four groups share the additions over the lanes of a vector.
"""

from typing import Any

from cpu_kernels.compiling.jit import inner
from cpu_kernels.linear.coded_kinds import FIELDS
from cpu_kernels.simd.structs import BFLOAT16, int32s
from cpu_kernels.simd.vectors import (
    LANES,
    add,
    load,
    operation,
    place,
    put,
    put_totals,
    total_in_order,
    vector,
)
from cpu_kernels.simd.widen import widened_bfloat16

GROUP, MINIMUMS = 1, 3  # fields of a kind
TOGETHER = 4


@inner
def _group_of(call: Any) -> int:
    """Columns of a group with minimums. All kinds that have minimums have such groups."""
    group = 0
    for kind in range(call.forms.shape[0]):
        form = int32s(call.forms.address + 4 * FIELDS * kind)
        if form[MINIMUMS] != 0:
            group = form[GROUP]
    return group


def _writer(load: Any, item: int) -> Any:
    """Makes a function that writes the sums of one row, whose numbers have `item` bytes."""

    @inner
    def lanes(x: int, size: int) -> Any:
        """The sum of a group's columns, every 16th in one lane."""
        found = load(x)
        for column in range(LANES, size, LANES):
            found = add(found, load(x + item * column))
        return found

    @inner
    def write(x: int, sums: int, group: int, columns: int) -> None:
        groups, step = (columns + group - 1) // group, item * group
        together = groups - groups % TOGETHER
        for number in range(0, together, TOGETHER):
            at, last = x + step * number, columns - group * (number + TOGETHER - 1)
            put_totals(
                sums + 4 * number,
                lanes(at, group),
                lanes(at + step, group),
                lanes(at + 2 * step, group),
                lanes(at + 3 * step, min(group, last)),
            )
        for number in range(together, groups):
            found = lanes(x + step * number, min(group, columns - group * number))
            put(sums + 4 * number, total_in_order(found))

    return write


_write_bfloat16 = _writer(operation(vector, place)(widened_bfloat16), 2)
_write_float32 = _writer(load, 4)


@inner
def write_sums(call: Any, rows: int) -> None:
    """Writes the sums of the first rows to `call.sums`, float32 [T, groups].

    Each sum is made in the same order, whatever the other rows hold. There are no groups if no kind
    has minimums.
    """
    columns, groups = call.x.shape[1], call.sums.shape[1]
    if groups == 0:
        return
    group = _group_of(call)
    for row in range(rows):
        sums = call.sums.address + 4 * groups * row
        if call.x.dtype == BFLOAT16:
            _write_bfloat16(call.x.address + 2 * columns * row, sums, group, columns)
        else:
            _write_float32(call.x.address + 4 * columns * row, sums, group, columns)
