"""Packing: interleaves 16 rows, so that words at the same position make one vector."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cpu_kernels.simd.vectors import INTS, LANES, LONG, masked_load, smaller

HALF = LANES // 2
# Lane orders that interleave the lower halves of two vectors, and their upper halves.
LOW, HIGH = (
    ir.Constant(INTS, [lane for i in range(first, first + HALF) for lane in (i, LANES + i)])
    for first in (0, HALF)
)


@intrinsic
def pack(
    context: Any, source: Any, step: Any, last: Any, count: Any, target: Any, target_step: Any
) -> Any:
    """Writes the words of 16 rows to `target`: the first of each row, then the second of each, ...

    Args:
        source, step: address of the first row, and bytes from one to the next.
        last: index of the last row; rows after it repeat it.
        count: words in a row. Vectors are written up to the next multiple of 16, padded by zeros.
        target, target_step: where the first vector goes, and bytes from one to the next.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, step, last, count, target, target_step = arguments
        chosen = [smaller(builder, LONG(row), last) for row in range(LANES)]
        rows = [builder.add(source, builder.mul(row, step)) for row in chosen]
        with cgutils.for_range_slice(builder, LONG(0), count, LONG(LANES), inc=True) as (at, _):
            left = builder.sub(count, at)
            whole = builder.icmp_signed(">=", left, LONG(LANES))
            start = builder.add(target, builder.mul(at, target_step))
            with builder.if_else(whole, likely=True) as (all_of_them, some):
                with all_of_them:
                    _pack(builder, rows, at, None, start, target_step)
                with some:
                    _pack(builder, rows, at, left, start, target_step)
        return context.get_dummy_value()

    return types.none(*[types.intp] * 6), generate


def _pack(builder: Any, rows: list[Any], at: Any, count: Any, target: Any, step: Any) -> None:
    """Packs 16 words of each row, or the first `count` if it is not None."""
    vectors = []
    for row in rows:
        address = builder.add(row, builder.mul(at, LONG(4)))
        place = builder.inttoptr(address, INTS.as_pointer())
        if count is None:
            vectors.append(builder.load(place, align=4))
        else:
            vectors.append(masked_load(builder, place, INTS, "i32", count, 4))
    for _ in range(LANES.bit_length() - 1):
        pairs = zip(vectors[:HALF], vectors[HALF:], strict=True)
        vectors = [builder.shuffle_vector(a, b, order) for a, b in pairs for order in (LOW, HIGH)]
    for i, vector in enumerate(vectors):
        place = builder.add(target, builder.mul(LONG(i), step))
        builder.store(vector, builder.inttoptr(place, INTS.as_pointer()), align=4)
