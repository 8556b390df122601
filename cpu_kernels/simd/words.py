"""Words of 32 bits: one float32, or two numbers of 16 bits. Products take one word of each row at
a time.

Processors with an instruction for pairs of bfloat16 multiply them directly; on others, and of
float16, they are widened to float32 in registers.
"""

from typing import Any

from llvmlite import binding, ir

from cpu_kernels.compiling.jit import processor_has
from cpu_kernels.simd.vectors import (
    FLOAT,
    FLOATS,
    INTS,
    LANES,
    LONG,
    call,
    madd_values,
    same,
    spread_value,
)
from cpu_kernels.simd.widen import float16_of_bits

MULTIPLIES_PAIRS = processor_has("avx512f") and processor_has("avx512bf16")
CONVERTS_FLOAT16 = processor_has("f16c")


SHORTS = ir.VectorType(ir.IntType(16), LANES)
_HALVES = ir.VectorType(ir.HalfType(), LANES)


class Floats:
    """Each word is a float32.

    Attributes:
        step: Bytes of a word in a row on the left.
        numbers: Numbers in a word.
    """

    step, numbers = 4, 1

    def __init__(self, builder: Any):
        self.builder = builder

    def left(self, address: Any) -> list[Any]:
        """Loads one row's word and spreads each of its numbers over a vector."""
        return [spread_value(self.builder, load_at(self.builder, address, FLOAT))]

    def right(self, address: Any) -> list[Any]:
        """Loads the words of 16 rows, side by side at an address; as many vectors as `left`."""
        return [load_at(self.builder, address, FLOATS)]

    def madd(self, a: Any, b: Any, total: Any) -> Any:
        """Adds the products of a left and a right vector to a vector of sums."""
        return madd_values(self.builder, a, b, total)


class WidenedPairs(Floats):
    """Words of two bfloat16 on the right, float32 on the left.

    A bfloat16 is the upper half of a float32, so widening takes one operation for each vector.
    """

    step, numbers = 8, 2

    def left(self, address: Any) -> list[Any]:
        second = self.builder.add(address, LONG(4))
        return [*super().left(address), *super().left(second)]

    def right(self, address: Any) -> list[Any]:
        words = load_at(self.builder, address, INTS)
        even = self.builder.shl(words, same(16))
        odd = self.builder.and_(words, same(0xFFFF0000))
        return [self.builder.bitcast(half, FLOATS) for half in (even, odd)]


class WidenedHalves(WidenedPairs):
    """Words of two float16 on the right, float32 on the left."""

    def right(self, address: Any) -> list[Any]:
        words = load_at(self.builder, address, INTS)
        even = self.builder.and_(words, same(0xFFFF))
        return [self._wide(half) for half in (even, self.builder.lshr(words, same(16)))]

    def _wide(self, bits: Any) -> Any:
        """Without the instruction LLVM would call a function that does not exist."""
        if not CONVERTS_FLOAT16:
            return float16_of_bits(self.builder, bits)
        halves = self.builder.bitcast(self.builder.trunc(bits, SHORTS), _HALVES)
        return self.builder.fpext(halves, FLOATS)


class _Bfloat(ir.Type):  # type: ignore[misc]
    """LLVM's own type, which llvmlite does not name."""

    def _to_string(self) -> str:
        return "bfloat"


# The instruction's operands; LLVM before version 16 takes each pair as an integer.
_PAIRS = INTS if binding.llvm_version_info < (16,) else ir.VectorType(_Bfloat(), 2 * LANES)


class Pairs(Floats):
    """Words of two bfloat16 on both sides, for processors that multiply pairs of them.

    The instruction treats subnormal numbers as 0.
    """

    numbers = 2

    def madd(self, a: Any, b: Any, total: Any) -> Any:
        pairs = [self.builder.bitcast(words, _PAIRS) for words in (a, b)]
        name = "llvm.x86.avx512bf16.dpbf16ps.512"
        return call(self.builder, name, (total, *pairs), FLOATS)


# How this processor multiplies words of two bfloat16.
BFLOAT16_WORDS: type[Floats] = Pairs if MULTIPLIES_PAIRS else WidenedPairs


def load_at(builder: Any, address: Any, kind: Any) -> Any:
    """Loads a value from an address, a multiple of 4."""
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=4)
