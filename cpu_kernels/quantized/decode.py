"""Decodes some groups of a panel into memory, as words that lie side by side."""

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cpu_kernels.quantized.codes import Decoded
from cpu_kernels.simd.micro_kernel import VECTORS
from cpu_kernels.simd.vectors import BYTES, FLOATS, LONG, prefetch_at, smaller
from cpu_kernels.simd.words import Floats, load_at


def decode_of(codes: type[Decoded], words: type[Floats]) -> Any:
    """Makes a function that decodes groups of such codes into such words.

    Its arguments, in this order:
        codes, step: address of the first group's codes, and bytes from one group's to the next's.
        group, groups, size: columns of x in a group, number of groups, and columns of x in all.
        table: address of the table of codes of 4 bits.
        out: where the words go.
        ahead: distance from a line of codes to the line to prefetch with it.
    """

    @intrinsic
    def decode(
        context: Any,
        codes_at: Any,
        step: Any,
        group: Any,
        groups: Any,
        size: Any,
        table: Any,
        out: Any,
        ahead: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            codes_at, step, group, groups, size, table, out, ahead = arguments
            decoder = codes(builder, words, load_at(builder, table, FLOATS))
            in_line = LONG(codes.columns(words))
            line_out = LONG(codes.columns(words) // words.numbers * VECTORS * BYTES)
            with cgutils.for_range(builder, groups) as outer:
                start = builder.add(codes_at, builder.mul(outer.index, step))
                before = builder.mul(outer.index, group)
                lines = builder.sdiv(smaller(builder, group, builder.sub(size, before)), in_line)
                done = builder.sdiv(before, in_line)
                with cgutils.for_range(builder, lines) as loop:
                    line = builder.add(start, builder.mul(loop.index, LONG(codes.line_bytes)))
                    for byte in range(0, codes.line_bytes, BYTES):
                        prefetch_at(builder, builder.add(builder.add(line, ahead), LONG(byte)))
                    number = builder.add(done, loop.index)
                    place = builder.add(out, builder.mul(number, line_out))
                    _store_words(builder, decoder.line(line), place)
            return context.get_dummy_value()

        return types.none(*[types.intp] * 8), generate

    return decode


def _store_words(builder: Any, line: list[list[Any]], place: Any) -> None:
    vectors = [vector for word in line for vector in word]
    for i, vector in enumerate(vectors):
        at = builder.add(place, LONG(BYTES * i))
        builder.store(vector, builder.inttoptr(at, FLOATS.as_pointer()), align=4)
