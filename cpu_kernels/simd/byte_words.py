"""Words of four bytes: products of weights without sign and numbers of x with sign, in int32.

A weight w is stored as w + 128, since instructions multiply bytes without sign by bytes with sign.
Sums start at -128 * sum(x), and so become those of w. All of it is exact: int32 wraps around, so
only the result must fit.

Processors with VNNI multiply and add four bytes in one instruction. Others with AVX2 widen bytes to
16 bits and multiply pairs; the rest widens to 32 bits.
"""

from typing import Any

from llvmlite import ir

from cpu_kernels.compiling.jit import processor_has
from cpu_kernels.simd.vectors import INT, INTS, LANES, call, same
from cpu_kernels.simd.words import load_at

SHORTS = ir.VectorType(ir.IntType(16), 2 * LANES)  # a vector of words as pairs
_UNSET = ir.Constant(INTS, ir.Undefined)


class Bytes:
    """Each byte is widened to 32 bits: for any processor.

    Attributes:
        step: bytes of a word in a row on the left.
    """

    step = 4

    def __init__(self, builder: Any):
        self.builder = builder

    def left(self, address: Any) -> list[Any]:
        """Loads one row's word, with sign, and spreads each of its parts over a vector."""
        word = load_at(self.builder, address, INT)
        parts = []
        for byte in range(4):
            high = self.builder.shl(word, INT(24 - 8 * byte))
            parts.append(spread_int(self.builder, self.builder.ashr(high, INT(24))))
        return parts

    def right(self, address: Any) -> list[Any]:
        """Loads the words of 16 rows, side by side and without sign; as many vectors as `left`."""
        words = load_at(self.builder, address, INTS)
        shifted = [self.builder.lshr(words, same(8 * byte)) for byte in range(4)]
        return [self.builder.and_(one, same(0xFF)) for one in shifted]

    def madd(self, a: Any, b: Any, total: Any) -> Any:
        """Adds the products of a left and a right vector to a vector of sums."""
        return self.builder.add(total, self.builder.mul(a, b))


class BytePairs(Bytes):
    """Pairs of 16 bits: bytes 0 and 2 of each word, then 1 and 3."""

    instruction, lanes = "llvm.x86.avx2.pmadd.wd", 8

    def left(self, address: Any) -> list[Any]:
        builder, eight = self.builder, ir.Constant(SHORTS, [8] * 2 * LANES)
        words = spread_int(builder, load_at(builder, address, INT))
        odd = builder.bitcast(words, SHORTS)
        even = builder.shl(odd, eight)
        return [builder.ashr(half, eight) for half in (even, odd)]

    def right(self, address: Any) -> list[Any]:
        words = load_at(self.builder, address, INTS)
        even = self.builder.and_(words, same(0x00FF00FF))
        odd = self.builder.and_(self.builder.lshr(words, same(8)), same(0x00FF00FF))
        return [self.builder.bitcast(half, SHORTS) for half in (even, odd)]

    def madd(self, a: Any, b: Any, total: Any) -> Any:
        products = _by_registers(self.builder, self.instruction, self.lanes, a, b)
        return self.builder.add(total, products)


class WideBytePairs(BytePairs):
    """The same in the registers of AVX-512."""

    instruction, lanes = "llvm.x86.avx512.pmaddw.d.512", 16


class ByteQuads(Bytes):
    """Whole words, with VNNI in the registers of AVX2.

    LLVM calls the four bytes an int32. Its versions from 22 on have another signature, but also
    know this one, which is that of all versions.
    """

    instruction, lanes = "llvm.x86.avx512.vpdpbusd.256", 8

    def left(self, address: Any) -> list[Any]:
        return [spread_int(self.builder, load_at(self.builder, address, INT))]

    def right(self, address: Any) -> list[Any]:
        return [load_at(self.builder, address, INTS)]

    def madd(self, a: Any, b: Any, total: Any) -> Any:
        return _by_registers(self.builder, self.instruction, self.lanes, total, b, a)


class WideByteQuads(ByteQuads):
    """The same in the registers of AVX-512."""

    instruction, lanes = "llvm.x86.avx512.vpdpbusd.512", 16


# The ways to multiply words of bytes, with the features that each needs; the fastest first.
WAYS: tuple[tuple[type[Bytes], tuple[str, ...]], ...] = (
    (WideByteQuads, ("avx512f", "avx512vnni")),
    (ByteQuads, ("avx2", "avxvnni")),
    (WideBytePairs, ("avx512f", "avx512bw")),
    (BytePairs, ("avx2",)),
    (Bytes, ()),
)
# How this processor does it.
BYTE_WORDS = next(way for way, needs in WAYS if all(map(processor_has, needs)))


def spread_int(builder: Any, number: Any) -> Any:
    """Broadcasts one int32 (an LLVM value) to all lanes."""
    first = builder.insert_element(_UNSET, number, INT(0))
    return builder.shuffle_vector(first, _UNSET, ir.Constant(INTS, [0] * LANES))


def _by_registers(builder: Any, name: str, lanes: int, *values: Any) -> Any:
    """Calls an instruction for vectors of `lanes` int32 with parts of vectors of 16 int32."""
    result = ir.VectorType(INT, lanes)
    if lanes == LANES:
        return call(builder, name, values, result)
    parts = []
    for part in range(LANES // lanes):
        cut = [_part(builder, value, part, LANES // lanes) for value in values]
        parts.append(call(builder, name, cut, result))
    every = ir.Constant(INTS, list(range(LANES)))
    return builder.shuffle_vector(*parts, every)


def _part(builder: Any, value: Any, part: int, parts: int) -> Any:
    """One of equal parts of a vector's lanes."""
    size = value.type.count // parts
    order = ir.Constant(ir.VectorType(INT, size), list(range(part * size, (part + 1) * size)))
    return builder.shuffle_vector(value, value, order)
