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

from pallas_kernels.numba.jit import processor_has
from pallas_kernels.numba.vectors import below

LANES, WEIGHT_ROWS = (16, 6) if processor_has("avx512f") else (8, 3)
X_ROWS = 4
# Whether the processor multiplies pairs of bfloat16 and adds them to a float32.
MULTIPLIES_PAIRS = LANES == 16 and processor_has("avx512bf16")
STEP = 2 * LANES  # numbers of a row that are read at once, at most
FLOAT, SHORT, INT, WORD = ir.FloatType(), ir.IntType(16), ir.IntType(32), ir.IntType(64)
FLOATS, INTS = ir.VectorType(FLOAT, LANES), ir.VectorType(INT, LANES)


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
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            weights, apart, last, x, out, count, size, length, width, more = arguments
            chosen = [_smaller(builder, builder.mul(apart, WORD(i)), last) for i in range(WEIGHT_ROWS)]
            narrow = _Pairs if MULTIPLIES_PAIRS else _Bfloats
            kind = narrow if bfloat16 else _Floats
            ours = kind(builder, weights, size, chosen)
            theirs = kind(builder, x, length, [WORD(row) for row in range(x_rows)])
            sums = _sums(builder, ours, theirs, count)
            _write(builder, sums, out, width, chosen, more)
            return context.get_dummy_value()

        return types.none(*[types.intp] * 10), generate

    return dots


def _smaller(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.icmp_signed("<", a, b), a, b)


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

    def madd(self, a: Any, b: Any, total: Any) -> Any:
        """The products of two of `load`'s vectors, added to a vector of sums."""
        return _call(self.builder, f"llvm.fmuladd.v{LANES}f32", FLOATS, [a, b, total])

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


class _Bfloat(ir.Type):  # type: ignore[misc]
    """LLVM's own type, which llvmlite does not name."""

    def _to_string(self) -> str:
        return "bfloat"


BFLOAT = _Bfloat()


class _Pairs(_Bfloats):
    """Rows of bfloat16 for a processor that multiplies pairs of them."""

    def load(self, at: Any, mask: Any) -> list[list[Any]]:
        kind = ir.VectorType(BFLOAT, STEP)
        rows = (self._load(start, at, mask) for start in self.starts)
        return [[self.builder.bitcast(row, kind) for row in rows]]

    def madd(self, a: Any, b: Any, total: Any) -> Any:
        return _call(self.builder, "llvm.x86.avx512bf16.dpbf16ps.512", FLOATS, [total, a, b])


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
                builder.store(ours.madd(left[i], right[j], builder.load(total)), total)

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
    """All is read before anything is written: rows of weights may be one and the same."""
    start = builder.inttoptr(out, FLOAT.as_pointer())
    columns = (builder.add(builder.mul(width, WORD(j)), chosen[i]) for j, i in sums)
    places = [builder.gep(start, [column]) for column in columns]
    results = _totals(builder, list(sums.values()))
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


def _totals(builder: Any, vectors: list[Any]) -> list[Any]:
    """The sum of the lanes of each vector, in that order.

    Two vectors become one: of each the upper halves are added to the lower, then the upper quarters
    of these and so on, which takes a third of the instructions that they would take one by one.
    """
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


def _call(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """A call of one of LLVM's own functions."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)
