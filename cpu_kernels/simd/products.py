"""Products of 4 rows with keys or values: each number is read once and used four times.

Keys and values are float32, or narrower numbers that are widened in registers. Sums stay in
registers too: with AVX-512's 32 registers, the sums of 4 rows and up to 4 keys, or of 4 rows and
32 columns.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cpu_kernels.compiling.jit import inner, processor_has
from cpu_kernels.simd.vectors import (
    BYTES,
    FLOAT,
    FLOATS,
    LANES,
    LONG,
    madd_values,
    prefetch_at,
    spread_value,
    totals_of_four,
)
from cpu_kernels.simd.widen import widened_bfloat16, widened_float8, widened_int8
from cpu_kernels.simd.words import load_at

ROWS = 4
MANY_REGISTERS = processor_has("avx512f")


class Numbers(NamedTuple):
    """The dtype of keys and values.

    Attributes:
        load: emits a load of 16 numbers at an address, widened to float32.
        item: bytes of one number.
        keys: number of keys multiplied at once. One for float32: four would be a third faster in
            cache, but a tenth slower from memory, since they read from four places.
    """

    load: Callable[[Any, Any], Any]
    item: int
    keys: int


FLOAT32 = Numbers(lambda builder, address: load_at(builder, address, FLOATS), 4, 1)
BFLOAT16 = Numbers(widened_bfloat16, 2, 4 if MANY_REGISTERS else 1)
INT8 = Numbers(widened_int8, 1, BFLOAT16.keys)
FLOAT8 = Numbers(widened_float8, 1, BFLOAT16.keys)


def score_run_of(numbers: Numbers) -> Any:
    """Makes a Numba function that scores consecutive keys in a cache of such numbers."""
    some, one = _dots_of(numbers.keys, numbers), _dots_of(1, numbers)
    item, at_once = numbers.item, numbers.keys

    @inner
    def score_run(
        left: int, width: int, keys: int, count: int, out: int, out_step: int, ahead: int
    ) -> None:
        """out [4, count] = left [4, width] @ keys [count, width].T, `width` a multiple of 16.

        Args:
            left: address of consecutive rows, float32.
            keys: address of consecutive rows.
            out: address of rows that are `out_step` bytes apart.
            ahead: distance in bytes from a number of the keys to the one to prefetch with it.
        """
        i, step = 0, item * width
        while i + at_once <= count:
            some(left, width, keys + i * step, out + 4 * i, out_step, ahead)
            i += at_once
        while i < count:
            one(left, width, keys + i * step, out + 4 * i, out_step, ahead)
            i += 1

    return score_run


def add_run_of(numbers: Numbers) -> Any:
    """Makes a Numba function that adds consecutive weighted values to sums."""
    two, one = _products_of(2, numbers), _products_of(1, numbers)
    vector_bytes = numbers.item * LANES

    @inner
    def add_run(
        left: int,
        left_step: int,
        values: int,
        count: int,
        out: int,
        out_step: int,
        width: int,
        ahead: int,
    ) -> None:
        """out [4, width] += left [4, count] @ values [count, width], `width` a multiple of 16.

        With steps of 0 it is one row, which is computed four times.

        Args:
            left, out: addresses of float32 rows that are `left_step` and `out_step` bytes apart.
            values: address of consecutive rows.
            ahead: distance in bytes from a number of the values to the one to prefetch with it.
        """
        done, vectors = 0, width // LANES
        while MANY_REGISTERS and done + 2 <= vectors:
            at, to = values + done * vector_bytes, out + done * BYTES
            two(left, left_step, at, count, to, out_step, width, ahead)
            done += 2
        while done < vectors:
            at, to = values + done * vector_bytes, out + done * BYTES
            one(left, left_step, at, count, to, out_step, width, ahead)
            done += 1

    return add_run


def _dots_of(keys: int, numbers: Numbers) -> Any:
    """out [4, keys] = left [4, width] @ right [keys, width].T."""
    load, item, _ = numbers

    @intrinsic
    def dots(
        context: Any, left: Any, width: Any, right: Any, out: Any, out_step: Any, ahead: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            left, width, right, out, out_step, ahead = arguments
            lefts = _apart(builder, left, builder.mul(width, LONG(4)), ROWS)
            rights = _apart(builder, right, builder.mul(width, LONG(item)), keys)
            sums = _sums(builder, [[ir.Constant(FLOATS, None)] * keys] * ROWS)
            with cgutils.for_range(builder, builder.udiv(width, LONG(LANES))) as loop:
                offset = builder.mul(loop.index, LONG(item * LANES))
                columns = [load(builder, builder.add(place, offset)) for place in rights]
                next_lines = builder.add(builder.add(right, ahead), builder.mul(offset, LONG(keys)))
                for byte in range(0, keys * item * LANES, BYTES):
                    prefetch_at(builder, builder.add(next_lines, LONG(byte)))
                offset = builder.mul(loop.index, LONG(BYTES))
                for row, totals in zip(lefts, sums, strict=True):
                    theirs = load_at(builder, builder.add(row, offset), FLOATS)
                    _add(builder, [theirs] * keys, columns, totals)
            _write_totals(builder, sums, out, out_step)
            return context.get_dummy_value()

        return types.none(*[types.intp] * 6), generate

    return dots


def _write_totals(builder: Any, sums: list[list[Any]], out: Any, out_step: Any) -> None:
    """Adds up the lanes of each sum, in an order that does not depend on the number of keys."""
    outs = _apart(builder, out, out_step, ROWS)
    rows = [[builder.load(total) for total in row] for row in sums]
    if len(rows[0]) > 1:
        for place, row in zip(outs, rows, strict=True):
            totals = totals_of_four(builder, row)
            builder.store(totals, builder.inttoptr(place, totals.type.as_pointer()), align=4)
    else:
        totals = totals_of_four(builder, [row[0] for row in rows])
        for i, place in enumerate(outs):
            total = builder.extract_element(totals, ir.IntType(32)(i))
            builder.store(total, builder.inttoptr(place, FLOAT.as_pointer()), align=4)


def _products_of(vectors: int, numbers: Numbers) -> Any:
    """out [4, 16 * vectors] += left [4, depth] @ right [depth, 16 * vectors]."""
    load, item, _ = numbers

    @intrinsic
    def products(
        context: Any,
        left: Any,
        left_step: Any,
        right: Any,
        depth: Any,
        out: Any,
        out_step: Any,
        width: Any,
        ahead: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            left, left_step, right, depth, out, out_step, width, ahead = arguments
            lefts = _apart(builder, left, left_step, ROWS)
            outs = [
                _apart(builder, place, LONG(BYTES), vectors)
                for place in _apart(builder, out, out_step, ROWS)
            ]
            old = [[load_at(builder, place, FLOATS) for place in row] for row in outs]
            sums = _sums(builder, old)
            with cgutils.for_range(builder, depth) as loop:
                step = builder.mul(width, LONG(item))
                start = builder.add(right, builder.mul(loop.index, step))
                places = _apart(builder, start, LONG(item * LANES), vectors)
                columns = [load(builder, place) for place in places]
                for place in places[:: BYTES // (item * LANES)]:
                    prefetch_at(builder, builder.add(place, ahead))
                offset = builder.mul(loop.index, LONG(4))
                for row, totals in zip(lefts, sums, strict=True):
                    factor = load_at(builder, builder.add(row, offset), FLOAT)
                    factors = [spread_value(builder, factor)] * vectors
                    _add(builder, factors, columns, totals)
            for row, places in zip(sums, outs, strict=True):
                for total, place in zip(row, places, strict=True):
                    pointer = builder.inttoptr(place, FLOATS.as_pointer())
                    builder.store(builder.load(total), pointer, align=4)
            return context.get_dummy_value()

        return types.none(*[types.intp] * 8), generate

    return products


def _apart(builder: Any, start: Any, step: Any, count: int) -> list[Any]:
    """`count` addresses, each `step` bytes after the one before."""
    return [builder.add(start, builder.mul(LONG(i), step)) for i in range(count)]


def _sums(builder: Any, values: list[list[Any]]) -> list[list[Any]]:
    """Variables for vectors, which LLVM keeps in registers."""
    sums = [[cgutils.alloca_once(builder, FLOATS) for _ in row] for row in values]
    for row, places in zip(values, sums, strict=True):
        for value, place in zip(row, places, strict=True):
            builder.store(value, place)
    return sums


def _add(builder: Any, left: list[Any], right: list[Any], totals: list[Any]) -> None:
    """Adds the product of two vectors to each total."""
    for a, b, total in zip(left, right, totals, strict=True):
        builder.store(madd_values(builder, a, b, builder.load(total)), total)
