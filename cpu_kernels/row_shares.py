"""Rows of arrays, shared out over XLA's threads in ranges of about the same size."""

from cpu_kernels import ffi
from cpu_kernels.jit import inner
from cpu_kernels.vectors import get_int

# Numbers of a range: some microseconds of work, so that claiming it costs little.
NUMBERS = 16384


@inner
def row_count(frame: int, operand: int, rows: int) -> int:
    """The int32 of an operand, but no more than `rows`: how many of them are not padding."""
    return min(max(get_int(ffi.address(ffi.operand(frame, operand))), 0), rows)


@inner
def range_count(frame: int) -> int:
    """How many ranges the rows of a call's first result are cut into, one at least."""
    result = ffi.result(frame, 0)
    return ranges_for(ffi.size(result, 0), ffi.size(result, 1))


@inner
def ranges_for(rows: int, width: int) -> int:
    """How many ranges so many rows of so many numbers are cut into, one at least."""
    return max(min(rows, rows * width // NUMBERS), 1)


@inner
def range_of(size: int, index: int, count: int) -> tuple[int, int]:
    """Where one of `count` equal ranges of `size` things begins and ends."""
    return size * index // count, size * (index + 1) // count
