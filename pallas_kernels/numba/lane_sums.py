"""The sums of the lanes of several vectors at once.

Two vectors become one: of each the upper half is added to the lower, then the upper quarters of
these and so on. So a sum has the same bits whatever is summed beside it, for a third of the
instructions that vectors would take one by one.
"""

from typing import Any

from llvmlite import ir

from pallas_kernels.numba.dot_rows import INT, INTS, LANES


def lane_sums(builder: Any, vectors: list[Any]) -> list[Any]:
    """The sum of the lanes of each vector, in that order."""
    held = [[number] * LANES for number in range(len(vectors))]  # whose sums are in which lane
    half = LANES // 2
    while half:
        low = _lower(half)
        pairs = [(at, min(at + 1, len(vectors) - 1)) for at in range(0, len(vectors), 2)]
        held = [[(held[a] + held[b])[lane] for lane in low] for a, b in pairs]
        vectors = [_add_halves(builder, vectors[a], vectors[b], low, half) for a, b in pairs]
        half //= 2
    place = {number: (i, lane) for i, row in enumerate(held) for lane, number in enumerate(row)}
    found = (place[number] for number in sorted(place))
    return [builder.extract_element(vectors[i], INT(lane)) for i, lane in found]


def _lower(half: int) -> list[int]:
    """The lower half of each `2 half` lanes of two vectors, b's counted from LANES.

    In the order of one instruction: across the register from 4 lanes on, else within each four.
    """
    group = LANES if half >= 4 else 4
    starts = (
        vector + at
        for first in range(0, LANES, group)
        for vector in (0, LANES)
        for at in range(first, first + group, 2 * half)
    )
    return [start + lane for start in starts for lane in range(half)]


def _add_halves(builder: Any, a: Any, b: Any, low: list[int], half: int) -> Any:
    orders = ([lane + offset for lane in low] for offset in (0, half))
    return builder.fadd(
        *(builder.shuffle_vector(a, b, ir.Constant(INTS, order)) for order in orders)
    )
