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

from pallas_kernels.numba.vectors import below

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
            kind = _Bfloats if bfloat16 else _Floats
            ours = kind(builder, weights, size, chosen)
            theirs = kind(builder, x, length, [WORD(row) for row in range(x_rows)])
            sums = _sums(builder, ours, theirs, count)
            _write(builder, sums, out, width, chosen, more)
            return context.get_dummy_value()

        return types.none(*[types.intp] * 10), generate

    return dots


class _Floats:
    """Some of the rows of `size` numbers at an address, of which vectors are read.

    Attributes:
        step: How many numbers of a row are read at once.
    """

    step, element, name = LANES, FLOAT, "f32"

    def __init__(self, builder: Any, address: Any, size: Any, rows: list[Any]):
        self.builder = builder
        self.vector = ir.VectorType(self.element, self.step)
        start = builder.inttoptr(address, self.element.as_pointer())
        self.starts = [builder.gep(start, [builder.mul(size, row)]) for row in rows]

    def load(self, at: Any, mask: Any) -> list[list[Any]]:
        """`step` numbers of each row from `at` on, as one vector each, in a list of lists.

        Args:
            mask: where it is false, 0 and nothing is read; None for all.
        """
        return [[self._load(start, at, mask) for start in self.starts]]

    def _load(self, start: Any, at: Any, mask: Any) -> Any:
        pointer = self.builder.bitcast(
            self.builder.gep(start, [at]), ir.VectorType(self.element, self.step).as_pointer()
        )
        align = 2 if self.element is SHORT else 4
        if mask is None:
            return self.builder.load(pointer, align=align)
        arguments = [pointer, INT(align), mask, ir.Constant(self.vector, None)]
        name = f"llvm.masked.load.v{self.step}{self.name}.p0"
        return _call(self.builder, name, self.vector, arguments)


class _Bfloats(_Floats):
    """Rows of bfloat16, of which two vectors come at a time: every other number, and the rest.

    A bfloat16 is the upper half of a float32: two operations for two vectors, where widening them
    in order would take four.
    """

    step, element, name = STEP, SHORT, "i16"

    def load(self, at: Any, mask: Any) -> list[list[Any]]:
        words = [self.builder.bitcast(self._load(start, at, mask), INTS) for start in self.starts]
        sixteen, upper = (ir.Constant(INTS, [value] * LANES) for value in (16, 0xFFFF0000))
        even = [self.builder.shl(word, sixteen) for word in words]
        odd = [self.builder.and_(word, upper) for word in words]
        return [[self.builder.bitcast(half, FLOATS) for half in some] for some in (even, odd)]


@intrinsic
def widen_pairs(context: Any, source: Any, count: Any, target: Any) -> Any:
    """STEP bfloat16 as float32: a vector of every other number, and one of those between.

    Of `count` numbers, if that is less; zeros for the others. Addresses are in bytes.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, count, target = arguments
        rows = _Bfloats(builder, source, WORD(0), [WORD(0)])
        place = builder.inttoptr(target, FLOATS.as_pointer())

        def write(mask: Any) -> None:
            for number, (half,) in enumerate(rows.load(WORD(0), mask)):
                builder.store(half, builder.gep(place, [WORD(number)]), align=4)

        whole = builder.icmp_signed(">=", count, WORD(STEP))
        with builder.if_else(whole, likely=True) as (all_of_them, some):
            with all_of_them:
                write(None)
            with some:
                write(below(builder, count, STEP))
        return context.get_dummy_value()

    return types.none(types.intp, types.intp, types.intp), generate


def _sums(builder: Any, ours: _Floats, theirs: _Floats, count: Any) -> dict[tuple[int, int], Any]:
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
        add(whole, below(builder, rest, step))
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
