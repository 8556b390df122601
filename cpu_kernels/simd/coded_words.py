"""Decodes the codes of panels in registers.

A line is the codes of a few columns of x, for all rows of a panel side by side: words of 32 bits
with 8 codes of 4 bits, or words of 16 bits with 2 codes of 8 bits. In a word of 4-bit codes the
lower half has the even columns and the upper half the odd ones. What is decoded are words as in
`simd/words.py`: one float32, or two bfloat16 on processors that multiply pairs of them.
"""

from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from cpu_kernels.compiling.jit import processor_has
from cpu_kernels.simd.micro_kernel import COLUMNS, VECTORS
from cpu_kernels.simd.vectors import (
    FLOAT,
    FLOATS,
    INT,
    INTS,
    LANES,
    LONG,
    call,
    same,
    spread_value,
)
from cpu_kernels.simd.widen import float8_of_bits
from cpu_kernels.simd.words import Floats, load_at

BYTE, SHORT = ir.IntType(8), ir.IntType(16)
SHORTS, PAIRS = ir.VectorType(SHORT, LANES), ir.VectorType(SHORT, 2 * LANES)
EIGHT = 8
PERMUTES_16, PERMUTES_8 = processor_has("avx512f"), processor_has("avx2")
PERMUTES_SHORTS = processor_has("avx512f") and processor_has("avx512bw")


class Decoded:
    """Words that are decoded already, a word of each row side by side: 1 or 2 columns of x a line.

    Attributes:
        code_bits: bits of a code; 0 if they depend on the word.
        line_bytes: bytes of a line.
        prefetched: bytes of the line to prefetch with a line.
    """

    code_bits, line_bytes, prefetched = 0, 4 * COLUMNS, 0

    def __init__(self, builder: Any, words: type[Floats], table: Any):
        self.builder, self.pairs, self.table = builder, words.numbers == 2, table

    @classmethod
    def columns(cls, words: type[Floats]) -> int:
        """Columns of x in a line."""
        return 8 * cls.line_bytes // cls.code_bits // COLUMNS if cls.code_bits else words.numbers

    def line(self, address: Any) -> Iterator[tuple[Any, ...]]:
        """The decoded words of a line: for each, a vector for every 16 rows of the panel.

        A word is decoded when it is asked for. LLVM keeps that order: words that were all decoded
        first would not fit into the registers.
        """
        step = self.line_bytes // VECTORS
        places = [self.builder.add(address, LONG(step * v)) for v in range(VECTORS)]
        return zip(*map(self._words, places), strict=True)

    def _words(self, place: Any) -> Iterator[Any]:
        yield load_at(self.builder, place, FLOATS)


class Table(Decoded):
    """4 bits, an index into a table of 16 numbers, which fills one vector."""

    code_bits, line_bytes, prefetched = 4, 4 * COLUMNS, 4 * COLUMNS

    def _words(self, place: Any) -> Iterator[Any]:
        line = load_at(self.builder, place, INTS)
        if self.pairs:
            for i in range(4):
                yield self._pairs(line, 4 * i)
        else:
            for i in range(EIGHT):
                shift = 4 * (i // 2) + 16 * (i % 2)
                yield self._floats(self.builder.lshr(line, same(shift)))

    def _pairs(self, line: Any, shift: int) -> Any:
        """The permutation takes 5 bits of an index, and the table has each number twice."""
        index = self.builder.lshr(self.builder.bitcast(line, PAIRS), _shorts(shift))
        table = self.builder.bitcast(self.table, PAIRS)
        found = call(self.builder, "llvm.x86.avx512.permvar.hi.512", (table, index), PAIRS)
        return self.builder.bitcast(found, FLOATS)

    def _floats(self, index: Any) -> Any:
        """Permutations take as many of an index's lowest bits as they need."""
        if PERMUTES_16:
            values = (self.table, index)
            return call(self.builder, "llvm.x86.avx512.permvar.sf.512", values, FLOATS)
        if PERMUTES_8:
            halves = [self._eight_floats(_half(self.builder, index, part)) for part in (0, 1)]
            order = ir.Constant(INTS, list(range(LANES)))
            return self.builder.shuffle_vector(*halves, order)
        return self._floats_one_by_one(index)

    def _eight_floats(self, index: Any) -> Any:
        """Eight numbers of the table: of its first half, or of its second."""
        builder, kind = self.builder, ir.VectorType(FLOAT, EIGHT)
        low, high = (
            call(builder, "llvm.x86.avx2.permps", (_half(builder, self.table, part), index), kind)
            for part in (0, 1)
        )
        zero, most = (ir.Constant(index.type, [number] * EIGHT) for number in (0, 28))
        in_second = builder.icmp_signed("<", builder.shl(index, most), zero)  # the sign: bit 3
        return builder.select(in_second, high, low)

    def _floats_one_by_one(self, index: Any) -> Any:
        builder, found = self.builder, ir.Constant(FLOATS, ir.Undefined)
        index = builder.and_(index, same(15))
        for lane in range(LANES):
            number = builder.extract_element(self.table, builder.extract_element(index, INT(lane)))
            found = builder.insert_element(found, number, INT(lane))
        return found


class Whole(Table):
    """4 bits, where code i stands for a whole number, the table's first one + i.

    Without a permutation of 16 numbers this takes fewer instructions than a table.
    """

    def __init__(self, builder: Any, words: type[Floats], table: Any):
        super().__init__(builder, words, table)
        first = spread_value(builder, builder.extract_element(table, INT(0)))
        self.first = builder.fptosi(first, INTS)

    def _floats(self, index: Any) -> Any:
        number = self.builder.add(self.builder.and_(index, same(15)), self.first)
        return self.builder.sitofp(number, FLOATS)


class Bytes(Decoded):
    """8 bits."""

    code_bits, line_bytes, prefetched = 8, 2 * COLUMNS, 2 * COLUMNS

    def _words(self, place: Any) -> Iterator[Any]:
        words = self.builder.zext(load_at(self.builder, place, SHORTS), INTS)
        even, odd = self._floats(words), self._floats(self.builder.lshr(words, same(8)))
        if not self.pairs:
            yield from (even, odd)
            return
        # All are bfloat16, which are the upper halves of float32.
        first = self.builder.lshr(self.builder.bitcast(even, INTS), same(16))
        second = self.builder.and_(self.builder.bitcast(odd, INTS), same(0xFFFF0000))
        yield self.builder.bitcast(self.builder.or_(first, second), FLOATS)

    def _floats(self, words: Any) -> Any:
        """The float32 of the codes in the lowest bytes of words."""
        raise NotImplementedError


class Int8(Bytes):
    """int8, which float32 and bfloat16 represent exactly."""

    def _floats(self, words: Any) -> Any:
        signed = self.builder.ashr(self.builder.shl(words, same(24)), same(24))
        return self.builder.sitofp(signed, FLOATS)


class Float8(Bytes):
    """float8_e4m3fn, which float32 and bfloat16 represent exactly."""

    def _words(self, place: Any) -> Iterator[Any]:
        if not PERMUTES_SHORTS:
            yield from super()._words(place)
            return
        pairs = self._decoded_pairs(place)
        if self.pairs:
            yield self.builder.bitcast(pairs, FLOATS)
            return
        words = self.builder.bitcast(pairs, INTS)
        even = self.builder.shl(words, same(16))
        odd = self.builder.and_(words, same(0xFFFF0000))
        yield from (self.builder.bitcast(half, FLOATS) for half in (even, odd))

    def _floats(self, words: Any) -> Any:
        return float8_of_bits(self.builder, self.builder.and_(words, same(0xFF)))

    def _decoded_pairs(self, place: Any) -> Any:
        """Moves the bits to where bfloat16 has them.

        NaN is the last code without its sign. The one after each code is looked at: of NaN, 0 and
        subnormal numbers it is one of the first, for which there is a table.
        """
        builder = self.builder
        bits = builder.zext(load_at(builder, place, ir.VectorType(BYTE, 2 * LANES)), PAIRS)
        after = builder.and_(builder.add(bits, _shorts(1)), _shorts(0x7F))
        number = builder.add(builder.shl(after, _shorts(4)), _shorts((120 << 7) - 16))
        table = ir.Constant(PAIRS, [*SPECIAL, *[0] * (2 * LANES - len(SPECIAL))])
        special = call(builder, "llvm.x86.avx512.permvar.hi.512", (table, after), PAIRS)
        is_special = builder.icmp_unsigned("<", after, _shorts(len(SPECIAL)))
        number = builder.select(is_special, special, number)
        sign = builder.and_(builder.shl(bits, _shorts(8)), _shorts(0x8000))
        return builder.or_(number, sign)


# As bfloat16, the bits of NaN, and of 0, 2**-9, 2 * 2**-9, ... 7 * 2**-9.
SPECIAL = (0x7FC0, 0, 0x3B00, 0x3B80, 0x3BC0, 0x3C00, 0x3C20, 0x3C40, 0x3C60)


def _shorts(number: int) -> Any:
    return ir.Constant(PAIRS, [number] * (2 * LANES))


def _half(builder: Any, value: Any, part: int) -> Any:
    """Eight lanes of sixteen."""
    order = [EIGHT * part + lane for lane in range(EIGHT)]
    return builder.shuffle_vector(value, value, ir.Constant(ir.VectorType(INT, EIGHT), order))
