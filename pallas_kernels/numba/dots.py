"""Dot products of a few rows with a few others at once, in vector registers.

Written as LLVM's vector operations, of which Numba has none. Of 16 registers (AVX2) 12 are sums, of
3 rows of weights with 4 of x, which 7 loads feed; of 32 (AVX-512) 24, with 6 rows of weights. A sum
is taken in the same order in a block of any size: lane by lane, then the lanes in halves.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pallas_kernels.numba.dot_rows import (
    FLOAT,
    FLOATS,
    LANES,
    MULTIPLIES_PAIRS,
    WORD,
    Bfloats,
    Floats,
    Pairs,
)
from pallas_kernels.numba.lane_sums import lane_sums
from pallas_kernels.numba.vectors import below, prefetch_at, smaller

WEIGHT_ROWS = 6 if LANES == 16 else 3
X_ROWS = 4
# How many other rows of weights can be brought near meanwhile: WEIGHT_ROWS shared out to any
# number of calls.
FETCHED = (0, 1, 2, 3, 6) if LANES == 16 else (0, 1, 2, 3)


def dots_of(x_rows: int, *, bfloat16: bool) -> Any:
    """A Numba function: the products of WEIGHT_ROWS rows with `x_rows` of x, in float32.

    Its arguments are in this order, addresses in bytes and all else in numbers:
        weights: address of the first row of weights, bfloat16 or float32.
        apart, last: the others are `apart` rows after one another, in weights and in out's
            columns, but none is more than `last` rows after the first.
        x: address of the first row of x, of the type of the weights; the others follow.
        out: address of the first product, float32.
        count: how many numbers of each row are multiplied.
        size, length, width: from one row to the next in weights, in x and in out.
        more: 0 if the products are to replace what is in out, 1 if they are added to it.
        ahead, ahead_step, ahead_rows: other rows of weights to bring near meanwhile: the address
            of the first, bytes from one to the next, and how many, one of FETCHED.
    """

    @intrinsic
    def dots(
        context: Any,
        weights: Any,
        apart: Any,
        last: Any,
        x: Any,
        out: Any,
        count: Any,
        size: Any,
        length: Any,
        width: Any,
        more: Any,
        ahead: Any,
        ahead_step: Any,
        ahead_rows: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            weights, apart, last, x, out, count, size, length, width, more, *ahead = arguments
            chosen = [
                smaller(builder, builder.mul(apart, WORD(i)), last) for i in range(WEIGHT_ROWS)
            ]
            narrow = Pairs if MULTIPLIES_PAIRS else Bfloats
            kind = narrow if bfloat16 else Floats
            ours = kind(builder, weights, size, chosen)
            theirs = kind(builder, x, length, [WORD(row) for row in range(x_rows)])
            sums = _sums(builder, ours, theirs, count, ahead)
            _write(builder, sums, out, width, chosen, more)
            return context.get_dummy_value()

        return types.none(*[types.intp] * 13), generate

    return dots


def _sums(
    builder: Any, ours: Floats, theirs: Floats, count: Any, ahead: list[Any]
) -> dict[tuple[int, int], Any]:
    """Vectors by row of theirs and of ours, the sum of whose lanes is the product."""
    pairs = [(j, i) for j in range(len(theirs.starts)) for i in range(len(ours.starts))]
    sums = {pair: cgutils.alloca_once(builder, FLOATS) for pair in pairs}

    def add(at: Any, mask: Any = None) -> None:
        for left, right in zip(ours.load(at, mask), theirs.load(at, mask), strict=True):
            for (j, i), total in sums.items():
                builder.store(ours.madd(left[i], right[j], builder.load(total)), total)

    for total in sums.values():
        builder.store(ir.Constant(FLOATS, None), total)
    rest = builder.and_(count, WORD(ours.step - 1))
    whole = builder.sub(count, rest)
    _loop(builder, whole, ours, add, ahead)
    with builder.if_then(builder.icmp_unsigned("!=", rest, WORD(0)), likely=False):
        add(whole, below(builder, rest, ours.step))
    return {pair: builder.load(total) for pair, total in sums.items()}


def _loop(builder: Any, stop: Any, rows: Floats, add: Any, ahead: list[Any]) -> None:
    """Calls `add` for each vector's start up to `stop`, and prefetches other rows' meanwhile.

    There is a loop for each number of such rows: what decides in a loop takes longer than the
    products of a vector.
    """
    start, step, count = ahead
    every = (WORD(0), stop, WORD(rows.step))
    loops = [builder.append_basic_block(f"fetching_{number}") for number in FETCHED]
    after = builder.append_basic_block("after")
    choice = builder.switch(count, loops[0])
    for number, block in zip(FETCHED, loops, strict=True):
        choice.add_case(WORD(number), block)
        builder.position_at_end(block)
        with cgutils.for_range_slice(builder, *every, inc=True) as (at, _):
            for row in range(number):
                offset = builder.add(builder.mul(at, WORD(rows.item)), builder.mul(step, WORD(row)))
                prefetch_at(builder, builder.add(start, offset))
            add(at)
        builder.branch(after)
    builder.position_at_end(after)


def _write(builder: Any, sums: Any, out: Any, width: Any, chosen: Any, more: Any) -> None:
    """All is read before anything is written: rows of weights may be one and the same."""
    start = builder.inttoptr(out, FLOAT.as_pointer())
    columns = (builder.add(builder.mul(width, WORD(j)), chosen[i]) for j, i in sums)
    places = [builder.gep(start, [column]) for column in columns]
    results = lane_sums(builder, list(sums.values()))
    added = builder.icmp_unsigned("!=", more, WORD(0))
    with builder.if_else(added) as (yes, no):
        with yes:
            pairs = zip(places, results, strict=True)
            totals = [builder.fadd(builder.load(place), result) for place, result in pairs]
            for place, total in zip(places, totals, strict=True):
                builder.store(total, place)
        with no:
            for place, result in zip(places, results, strict=True):
                builder.store(result, place)
