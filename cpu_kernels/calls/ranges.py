"""Rows of arrays, cut into ranges of about the same size: the work items of several kernels."""

from cpu_kernels.compiling.jit import inner

# Numbers of a range: some microseconds of work, so that claiming it costs little.
NUMBERS = 16384


@inner
def ranges_for(rows: int, width: int) -> int:
    """How many ranges so many rows of so many numbers are cut into, one at least."""
    return max(min(rows, rows * width // NUMBERS), 1)


@inner
def range_of(size: int, index: int, count: int) -> tuple[int, int]:
    """Where one of `count` equal ranges of `size` things begins and ends."""
    return size * index // count, size * (index + 1) // count
