"""The micro-kernel of products of bytes: sums of int32 in registers, scaled as they are written."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from cpu_kernels.simd.byte_words import Bytes, spread_int
from cpu_kernels.simd.micro_kernel import COLUMNS, VECTORS, sums_of, write
from cpu_kernels.simd.vectors import BYTES, FLOAT, FLOATS, INT, LONG, smaller, spread_value
from cpu_kernels.simd.words import load_at


def byte_kernel_of(rows: int, words: type[Bytes]) -> Any:
    """Makes a function: out [rows, COLUMNS] = (left @ right) * left's scales * right's scales.

    The sum of each product is an int32, which is rounded to float32, then multiplied by the row's
    scale, then by the column's. The function's arguments, in this order; steps are in bytes:
        left, left_step: address of the first row, and step to the next.
        last: index of the last row; rows after it repeat it.
        firsts, scales: addresses of an int32 for each row, where its sums start, and of its scale.
        right: address of the words of all columns, COLUMNS side by side.
        right_scales: address of the columns' scales, of all COLUMNS.
        depth: number of words in a row.
        out, out_step: address of the first row of results, float32, and step to the next.
        columns: number of columns to write.
        ahead, ahead_step: address of VECTORS cache lines to prefetch with the first word, and step
            to those of the next word.
    """

    @intrinsic
    def byte_kernel(
        context: Any,
        left: Any,
        left_step: Any,
        last: Any,
        firsts: Any,
        scales: Any,
        right: Any,
        right_scales: Any,
        depth: Any,
        out: Any,
        out_step: Any,
        columns: Any,
        ahead: Any,
        ahead_step: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            left, left_step, last, firsts, scales, right, right_scales = arguments[:7]
            depth, out, out_step, columns, *ahead = arguments[7:]
            chosen = [smaller(builder, LONG(row), last) for row in range(rows)]
            lefts = [builder.add(left, builder.mul(row, left_step)) for row in chosen]
            starts = [spread_int(builder, _number(builder, firsts, row, INT)) for row in chosen]
            panel = [right, LONG(4 * COLUMNS), LONG(BYTES)]
            sums = sums_of(builder, words(builder), starts, lefts, panel, depth, ahead)
            theirs = [_number(builder, scales, row, FLOAT) for row in chosen]
            results = _scaled(builder, sums, theirs, right_scales)
            outs = [builder.add(out, builder.mul(row, out_step)) for row in chosen]
            write(builder, results, outs, columns, LONG(0))
            return context.get_dummy_value()

        return types.none(*[types.intp] * 13), generate

    return byte_kernel


def _number(builder: Any, start: Any, index: Any, kind: ir.Type) -> Any:
    """Loads the number with this index."""
    return load_at(builder, builder.add(start, builder.mul(index, LONG(4))), kind)


def _scaled(
    builder: Any, sums: list[list[Any]], scales: list[Any], right_scales: Any
) -> list[list[Any]]:
    places = [builder.add(right_scales, LONG(BYTES * v)) for v in range(VECTORS)]
    ours = [load_at(builder, place, FLOATS) for place in places]
    results = []
    for row, scale in zip(sums, scales, strict=True):
        spread = spread_value(builder, scale)
        floats = [builder.fmul(builder.sitofp(total, FLOATS), spread) for total in row]
        results.append([builder.fmul(a, b) for a, b in zip(floats, ours, strict=True)])
    return results
