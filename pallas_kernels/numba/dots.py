"""Dot products of a few rows with a few others at once, in vector registers.

Written as LLVM's vector operations, of which Numba has none: 3 rows of weights and 4 of x make 12
sums, which stay in the 16 registers of AVX2 while 7 loads feed 12 multiply-adds. A sum is taken in
the same order in a block of any size: lane by lane, then the lanes in halves.
"""

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

WEIGHT_ROWS, X_ROWS = 3, 4
LANES = 16 if llvm.get_host_cpu_features().get("avx512f") else 8
STEP = 2 * LANES  # numbers of a row that are read at once, at most
FLOAT, SHORT, INT, WORD = ir.FloatType(), ir.IntType(16), ir.IntType(32), ir.IntType(64)
FLOATS, INTS = ir.VectorType(FLOAT, LANES), ir.VectorType(INT, LANES)


def dots_of(x_rows: int, *, bfloat16: bool) -> Any:
    """A Numba function: the products of 3 rows of weights with `x_rows` of x, in float32.

    Its arguments are in this order, addresses in bytes and all else in numbers:
        weights: address of the first row of weights, bfloat16 or float32.
        second, third: how many rows after it the others are, in weights and in out's columns.
        x: address of the first row of x, of the type of the weights; the others follow.
        out: address of the first product, float32.
        count: how many numbers of each row are multiplied.
        size, length, width: from one row to the next in weights, in x and in out.
        more: 0 if the products are to replace what is in out, 1 if they are added to it.
    """

    @intrinsic
    def dots(
        context: Any,
        weights: Any,
        second: Any,
        third: Any,
        x: Any,
        out: Any,
        count: Any,
        size: Any,
        length: Any,
        width: Any,
        more: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            weights, second, third, x, out, count, size, length, width, more = arguments
            chosen = [WORD(0), second, third]
            ours = _Rows(builder, weights, size, chosen, bfloat16)
            theirs = _Rows(builder, x, length, [WORD(row) for row in range(x_rows)], bfloat16)
            sums = _sums(builder, ours, theirs, count)
            _write(builder, sums, out, width, chosen, more)
            return context.get_dummy_value()

        return types.none(*[types.intp] * 10), generate

    return dots


class _Rows:
    """Some of the rows of `size` numbers at an address, read as vectors of float32.

    Attributes:
        step: How many numbers of a row are read at once.
    """

    def __init__(self, builder: Any, address: Any, size: Any, rows: list[Any], bfloat16: bool):
        self.builder = builder
        self.element, self.bytes, kind = (SHORT, 2, "i16") if bfloat16 else (FLOAT, 4, "f32")
        self.step = 2 * LANES if bfloat16 else LANES
        self.vector = ir.VectorType(self.element, self.step)
        self.masked_load = f"llvm.masked.load.v{self.step}{kind}.p0"
        start = builder.inttoptr(address, self.element.as_pointer())
        self.starts = [builder.gep(start, [builder.mul(size, row)]) for row in rows]

    def load(self, at: Any, mask: Any) -> list[list[Any]]:
        """`step` numbers of each row from `at` on; where a mask is false, 0 and nothing is read.

        Returns one vector a row for float32, in a list; two lists of them for bfloat16.
        """
        found = []
        for start in self.starts:
            pointer = self.builder.gep(start, [at])
            pointer = self.builder.bitcast(pointer, self.vector.as_pointer())
            if mask is None:
                found.append(self.builder.load(pointer, align=self.bytes))
            else:
                arguments = [pointer, INT(self.bytes), mask, ir.Constant(self.vector, None)]
                found.append(_call(self.builder, self.masked_load, self.vector, arguments))
        return [found] if self.element is FLOAT else self._halves(found)

    def _halves(self, vectors: list[Any]) -> list[list[Any]]:
        """A bfloat16 is the upper half of a float32: every other number, and those between.

        Two operations for two vectors, where widening them in order would take four.
        """
        words = [self.builder.bitcast(vector, INTS) for vector in vectors]
        sixteen, upper = (ir.Constant(INTS, [value] * LANES) for value in (16, 0xFFFF0000))
        even = [self.builder.shl(word, sixteen) for word in words]
        odd = [self.builder.and_(word, upper) for word in words]
        return [[self.builder.bitcast(half, FLOATS) for half in some] for some in (even, odd)]


def _sums(builder: Any, ours: _Rows, theirs: _Rows, count: Any) -> dict[tuple[int, int], Any]:
    """Vectors by row of theirs and of ours, the sum of whose lanes is the product."""
    pairs = [(j, i) for j in range(len(theirs.starts)) for i in range(len(ours.starts))]
    sums = {pair: cgutils.alloca_once(builder, FLOATS) for pair in pairs}

    def add(at: Any, mask: Any = None) -> None:
        for left, right in zip(ours.load(at, mask), theirs.load(at, mask), strict=True):
            for (j, i), total in sums.items():
                factors = [left[i], right[j], builder.load(total)]
                builder.store(_call(builder, f"llvm.fmuladd.v{LANES}f32", FLOATS, factors), total)

    for total in sums.values():
        builder.store(ir.Constant(FLOATS, None), total)
    step = ours.step
    rest = builder.and_(count, WORD(step - 1))
    whole = builder.sub(count, rest)
    every = (WORD(0), whole, WORD(step))
    with cgutils.for_range_slice(builder, *every, inc=True) as (at, _):
        add(at)
    with builder.if_then(builder.icmp_unsigned("!=", rest, WORD(0)), likely=False):
        kind = ir.VectorType(INT, step)
        nothing = ir.Constant(kind, None)
        one = builder.insert_element(nothing, builder.trunc(rest, INT), INT(0))
        limit = builder.shuffle_vector(one, nothing, nothing)
        add(whole, builder.icmp_unsigned("<", ir.Constant(kind, [*range(step)]), limit))
    return {pair: builder.load(total) for pair, total in sums.items()}


def _write(builder: Any, sums: Any, out: Any, width: Any, chosen: Any, more: Any) -> None:
    """All is read before anything is written: the rows of weights may be one and the same."""
    start = builder.inttoptr(out, FLOAT.as_pointer())
    places, results = [], []
    for (j, i), vector in sums.items():
        column = builder.add(builder.mul(width, WORD(j)), chosen[i])
        place = builder.gep(start, [column])
        results.append((_sum_of_lanes(builder, vector), place))
        places.append(place)
    added = builder.icmp_unsigned("!=", more, WORD(0))
    with builder.if_else(added) as (yes, no):
        with yes:
            totals = [builder.fadd(builder.load(place), result) for result, place in results]
            for total, place in zip(totals, places, strict=True):
                builder.store(total, place)
        with no:
            for result, place in results:
                builder.store(result, place)


def _sum_of_lanes(builder: Any, vector: Any) -> Any:
    lanes = LANES
    while lanes > 1:
        lanes //= 2
        kind = ir.VectorType(INT, lanes)
        halves = [
            builder.shuffle_vector(vector, vector, ir.Constant(kind, [*range(at, at + lanes)]))
            for at in (0, lanes)
        ]
        vector = builder.fadd(*halves)
    return builder.extract_element(vector, INT(0))


def _call(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """A call of one of LLVM's own functions."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)
