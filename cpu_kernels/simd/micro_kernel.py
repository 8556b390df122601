"""The micro-kernel of products with packed columns (BLIS): a tile of sums held in registers.

The kernel spreads one word of each left row over a vector and multiplies it with the words of all
columns, which lie side by side. So no lanes need adding up at the end; with short rows that would
take a third as long as the products. `words.py` says what a word is.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cpu_kernels.compiling.jit import processor_has
from cpu_kernels.simd.vectors import (
    FLOATS,
    LANES,
    LONG,
    masked_load,
    masked_store,
    prefetch_at,
    smaller,
)
from cpu_kernels.simd.words import Floats

# Sums of a tile: 24 of 32 registers (AVX-512), or 12 of 16 (AVX2, two for a vector of 16).
ROWS, VECTORS = (12, 2) if processor_has("avx512f") else (6, 1)
COLUMNS = VECTORS * LANES


def micro_kernel_of(rows: int, words: type[Floats]) -> Any:
    """Makes a function: out [rows, COLUMNS] = or += left [rows, depth] @ right [depth, COLUMNS].

    Its arguments, in this order; steps are in bytes:
        left, left_step: address of the first row, and step to the next.
        last: index of the last row; rows after it repeat it.
        right, right_step, apart: address of the first row's first 16 columns, step to the next row,
            and step to the next 16 columns.
        depth: number of words in a left row.
        out, out_step: address of the first row of sums, float32, and step to the next.
        columns: number of columns to write.
        more: 0 to overwrite out, 1 to add to it.
        ahead, ahead_step: address of VECTORS cache lines to prefetch with the first word, and step
            to those of the next word.
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
        ahead: Any,
        ahead_step: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            left, left_step, last, *right, depth, out, out_step, columns, more = arguments[:-2]
            chosen = [smaller(builder, LONG(row), last) for row in range(rows)]
            lefts = [builder.add(left, builder.mul(row, left_step)) for row in chosen]
            firsts = [ir.Constant(FLOATS, None)] * rows
            sums = sums_of(builder, words(builder), firsts, lefts, right, depth, arguments[-2:])
            outs = [builder.add(out, builder.mul(row, out_step)) for row in chosen]
            write(builder, sums, outs, columns, more)
            return context.get_dummy_value()

        return types.none(*[types.intp] * 13), generate

    return micro_kernel


def sums_of(
    builder: Any,
    words: Any,
    firsts: list[Any],
    lefts: list[Any],
    right: list[Any],
    depth: Any,
    ahead: list[Any],
) -> list[list[Any]]:
    """Computes a vector of sums for each row and each 16 columns.

    Args:
        words: how words are multiplied: an instance of `Floats`, or of `Bytes`.
        firsts: for each row the vector from which its sums start.
        ahead: as the last arguments of a micro-kernel; the others too.
    """
    start, step, apart = right
    sums = [[cgutils.alloca_once(builder, one.type) for _ in range(VECTORS)] for one in firsts]
    for row, one in zip(sums, firsts, strict=True):
        for total in row:
            builder.store(one, total)
    with cgutils.for_range(builder, depth) as loop:
        _prefetch(builder, loop.index, *ahead)
        at = builder.add(start, builder.mul(loop.index, step))
        places = [builder.add(at, builder.mul(LONG(v), apart)) for v in range(VECTORS)]
        ours = [words.right(place) for place in places]
        for left, row in zip(lefts, sums, strict=True):
            theirs = words.left(builder.add(left, builder.mul(loop.index, LONG(words.step))))
            for vectors, total in zip(ours, row, strict=True):
                for word, vector in zip(theirs, vectors, strict=True):
                    builder.store(words.madd(word, vector, builder.load(total)), total)
    return [[builder.load(total) for total in row] for row in sums]


def _prefetch(builder: Any, word: Any, start: Any, step: Any) -> None:
    place = builder.add(start, builder.mul(word, step))
    for line in range(VECTORS):
        prefetch_at(builder, builder.add(place, LONG(4 * LANES * line)))


def write(builder: Any, sums: list[list[Any]], outs: list[Any], columns: Any, more: Any) -> None:
    """Writes the first `columns` sums of each row, or adds them if `more` is not 0."""
    whole = builder.icmp_signed(">=", columns, LONG(COLUMNS))
    added = builder.icmp_unsigned("!=", more, LONG(0))
    counts = [builder.sub(columns, LONG(v * LANES)) for v in range(VECTORS)]
    starts = [builder.inttoptr(out, FLOATS.as_pointer()) for out in outs]
    places = [builder.gep(start, [LONG(v)]) for start in starts for v in range(VECTORS)]
    vectors = [vector for row in sums for vector in row]
    with builder.if_else(whole, likely=True) as (all_of_them, some):
        with all_of_them:
            _write_vectors(builder, vectors, places, [None] * len(places), added)
        with some:
            _write_vectors(builder, vectors, places, counts * len(starts), added)


def _write_vectors(
    builder: Any, vectors: list[Any], places: list[Any], counts: list[Any], added: Any
) -> None:
    """Stores the first `count` lanes of each vector (None: all), or adds them to memory.

    Reads everything before it writes anything, because places may coincide.
    """

    def store_all(values: list[Any]) -> None:
        for value, place, count in zip(values, places, counts, strict=True):
            if count is None:
                builder.store(value, place, align=4)
            else:
                masked_store(builder, place, value, "f32", count, 4)

    with builder.if_else(added) as (yes, no):
        with yes:
            old = [
                builder.load(place, align=4)
                if count is None
                else masked_load(builder, place, FLOATS, "f32", count, 4)
                for place, count in zip(places, counts, strict=True)
            ]
            store_all([builder.fadd(a, b) for a, b in zip(old, vectors, strict=True)])
        with no:
            store_all(vectors)
