"""Rows of arrays, shared out over XLA's threads in ranges of about the same size."""

from pallas_kernels.numba import ffi
from pallas_kernels.numba.jit import inner
from pallas_kernels.numba.vectors import get_int

# Numbers of a range: some microseconds of work, so that claiming it costs little.
NUMBERS = 16384


@inner
def row_count(frame: int, operand: int, rows: int) -> int:
    """The int32 of an operand, but no more than `rows`: how many of them are not padding."""
    return min(max(get_int(ffi.address(ffi.operand(frame, operand))), 0), rows)


@inner
def range_count(rows: int, width: int) -> int:
    """How many ranges `rows` of `width` numbers are cut into, one at least."""
    return max(min(rows, rows * width // NUMBERS), 1)
