"""The micro-kernel of products with packed columns (BLIS): a tile of sums held in registers.

One word of each row on the left is spread over a vector and multiplied with the words of all
columns, which lie side by side. So no lanes are left to be added up at the end, which with short
rows takes as long as a fifth of the products. A word is a float32, or two bfloat16 for a processor
that multiplies pairs of them.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pallas_kernels.numba.dot_rows import BFLOAT, MULTIPLIES_PAIRS, call
from pallas_kernels.numba.jit import processor_has
from pallas_kernels.numba.vectors import (
    FLOATS,
    INT,
    INTS,
    LANES,
    LONG,
    masked_load,
    masked_store,
)

# Sums of a tile: 24 of 32 registers (AVX-512), or 12 of 16 (AVX2, two for a vector of 16).
ROWS, VECTORS = (12, 2) if processor_has("avx512f") else (6, 1)
COLUMNS = VECTORS * LANES


def micro_kernel_of(rows: int, *, pairs: bool) -> Any:
    """A Numba function: out [rows, COLUMNS] = or += left [rows, depth] @ right [depth, COLUMNS].

    Its arguments are in this order, addresses and steps in bytes:
        left, left_step: the first row, and from one to the next.
        last: the last row; those after it are taken for it, and written as it is.
        right, right_step, apart: the first row's 16 columns, those of the next row, and from 16
            columns to the next 16.
        depth: words of a row on the left.
        out, out_step: the first row of sums, float32, and from one to the next.
        columns: how many are written.
        more: 0 if the products are to replace what is in out, 1 if they are added to it.
    """

    @intrinsic
    def micro_kernel(
        context: Any,
        left: Any,
        left_step: Any,
        last: Any,
        right: Any,
        right_step: Any,
        apart: Any,
        depth: Any,
        out: Any,
        out_step: Any,
        columns: Any,
        more: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            left, left_step, last, *right, depth, out, out_step, columns, more = arguments
            chosen = [_smaller(builder, LONG(row), last) for row in range(rows)]
            lefts = [builder.add(left, builder.mul(row, left_step)) for row in chosen]
            sums = _sums(builder, lefts, right, depth, pairs)
            outs = [builder.add(out, builder.mul(row, out_step)) for row in chosen]
            _write(builder, sums, outs, columns, more)
            return context.get_dummy_value()

        return types.none(*[types.intp] * 11), generate

    return micro_kernel


def _smaller(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def _sums(
    builder: Any, lefts: list[Any], right: list[Any], depth: Any, pairs: bool
) -> list[list[Any]]:
    """A vector of sums for each row and each 16 columns."""
    start, step, apart = right
    sums = [[cgutils.alloca_once(builder, FLOATS) for _ in range(VECTORS)] for _ in lefts]
    for row in sums:
        for total in row:
            builder.store(ir.Constant(FLOATS, None), total)
    with cgutils.for_range(builder, depth) as loop:
        at = builder.add(start, builder.mul(loop.index, step))
        ours = [
            _load(builder, builder.add(at, builder.mul(LONG(v), apart)), INTS)
            for v in range(VECTORS)
        ]
        for left, row in zip(lefts, sums, strict=True):
            word = _load(builder, builder.add(left, builder.mul(loop.index, LONG(4))), INT)
            unset = ir.Constant(INTS, ir.Undefined)
            first = builder.insert_element(unset, word, INT(0))
            word = builder.shuffle_vector(first, unset, ir.Constant(INTS, [0] * LANES))
            for vector, total in zip(ours, row, strict=True):
                builder.store(_madd(builder, word, vector, builder.load(total), pairs), total)
    return [[builder.load(total) for total in row] for row in sums]


def _load(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=4)


def _madd(builder: Any, a: Any, b: Any, total: Any, pairs: bool) -> Any:
    """The products of two vectors of words, added to a vector of sums."""
    if pairs:
        halves = ir.VectorType(BFLOAT, 2 * LANES)
        values = [total, builder.bitcast(a, halves), builder.bitcast(b, halves)]
        return call(builder, "llvm.x86.avx512bf16.dpbf16ps.512", FLOATS, values)
    values = [builder.bitcast(a, FLOATS), builder.bitcast(b, FLOATS), total]
    return call(builder, f"llvm.fmuladd.v{LANES}f32", FLOATS, values)


def _write(builder: Any, sums: list[list[Any]], outs: list[Any], columns: Any, more: Any) -> None:
    """All is read before anything is written: rows may be one and the same."""
    whole = builder.icmp_signed(">=", columns, LONG(COLUMNS))
    added = builder.icmp_unsigned("!=", more, LONG(0))
    places = [builder.inttoptr(out, FLOATS.as_pointer()) for out in outs]
    places = [[builder.gep(place, [LONG(v)]) for v in range(VECTORS)] for place in places]
    counts = [builder.sub(columns, LONG(v * LANES)) for v in range(VECTORS)]

    def write(load: Any, store: Any) -> None:
        with builder.if_else(added) as (yes, no):
            with yes:
                totals = [
                    [builder.fadd(load(v, place), vector) for v, (place, vector) in enumerate(row)]
                    for row in (zip(*both, strict=True) for both in zip(places, sums, strict=True))
                ]
                store_all(store, totals)
            with no:
                store_all(store, sums)

    def store_all(store: Any, totals: list[list[Any]]) -> None:
        for row, vectors in zip(places, totals, strict=True):
            for v, (place, vector) in enumerate(zip(row, vectors, strict=True)):
                store(v, place, vector)

    with builder.if_else(whole, likely=True) as (all_of_them, some):
        with all_of_them:
            write(
                lambda v, place: builder.load(place, align=4),
                lambda v, place, vector: builder.store(vector, place, align=4),
            )
        with some:
            write(
                lambda v, place: masked_load(builder, place, FLOATS, "f32", counts[v], 4),
                lambda v, place, vector: masked_store(builder, place, vector, "f32", counts[v], 4),
            )


add_tile = micro_kernel_of(ROWS, pairs=False)
# Where the processor cannot multiply pairs nobody calls it, but it is compiled all the same.
add_tile_of_pairs = micro_kernel_of(ROWS, pairs=MULTIPLIES_PAIRS)
