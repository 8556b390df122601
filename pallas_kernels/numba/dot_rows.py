"""Rows of float32 or bfloat16 in memory, and vectors of their numbers, multiplied and added up.

Where the processor has an instruction for pairs of bfloat16 they are multiplied as they are; else
they are widened to float32 in registers.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pallas_kernels.numba.jit import processor_has
from pallas_kernels.numba.vectors import below

LANES = 16 if processor_has("avx512f") else 8  # of a vector of float32
STEP = 2 * LANES  # numbers of a row that are read at once, at most
MULTIPLIES_PAIRS = LANES == 16 and processor_has("avx512bf16")
FLOAT, SHORT, INT, WORD = ir.FloatType(), ir.IntType(16), ir.IntType(32), ir.IntType(64)
FLOATS, INTS = ir.VectorType(FLOAT, LANES), ir.VectorType(INT, LANES)


class Floats:
    """Some of the rows of `size` numbers at an address, of which vectors are read.

    Attributes:
        step: How many numbers of a row are read at once.
        item: Bytes of a number.
    """

    step, item, element, name = LANES, 4, FLOAT, "f32"

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
        return call(self.builder, f"llvm.fmuladd.v{LANES}f32", FLOATS, [a, b, total])

    def _load(self, start: Any, at: Any, mask: Any) -> Any:
        pointer = self.builder.bitcast(
            self.builder.gep(start, [at]), ir.VectorType(self.element, self.step).as_pointer()
        )
        if mask is None:
            return self.builder.load(pointer, align=self.item)
        arguments = [pointer, INT(self.item), mask, ir.Constant(self.vector, None)]
        name = f"llvm.masked.load.v{self.step}{self.name}.p0"
        return call(self.builder, name, self.vector, arguments)


class Bfloats(Floats):
    """Rows of bfloat16, of which two vectors come at a time: every other number, and the rest.

    A bfloat16 is the upper half of a float32: two operations for two vectors, where widening them
    in order would take four.
    """

    step, item, element, name = STEP, 2, SHORT, "i16"

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


class Pairs(Bfloats):
    """Rows of bfloat16 for a processor that multiplies pairs of them.

    Its instruction takes subnormal numbers for 0.
    """

    def load(self, at: Any, mask: Any) -> list[list[Any]]:
        kind = ir.VectorType(BFLOAT, STEP)
        rows = (self._load(start, at, mask) for start in self.starts)
        return [[self.builder.bitcast(row, kind) for row in rows]]

    def madd(self, a: Any, b: Any, total: Any) -> Any:
        # The last may be read from memory by the instruction itself, which saves another one where
        # a vector is used once. With one row of x those are the weights.
        return call(self.builder, "llvm.x86.avx512bf16.dpbf16ps.512", FLOATS, [total, b, a])


@intrinsic
def widen_pairs(context: Any, source: Any, count: Any, target: Any) -> Any:
    """STEP bfloat16 as float32: a vector of every other number, and one of those between.

    Of `count` numbers, if that is less; zeros for the others. Addresses are in bytes.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, count, target = arguments
        rows = Bfloats(builder, source, WORD(0), [WORD(0)])
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


def call(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """A call of one of LLVM's own functions."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)
