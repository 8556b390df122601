"""Cuts rows of arrays into ranges of about the same size: the work items of several kernels."""

from cpu_kernels.compiling.jit import inner

# Numbers in a range: enough for some microseconds of work, so that claiming it is cheap.
NUMBERS = 16384


@inner
def ranges_for(rows: int, width: int) -> int:
    """Number of ranges that rows of `width` numbers are cut into, at least one."""
    return max(min(rows, rows * width // NUMBERS), 1)


@inner
def range_of(size: int, index: int, count: int) -> tuple[int, int]:
    """Begin and end of range number `index` of `count` equal ranges of `size` things."""
    return size * index // count, size * (index + 1) // count
