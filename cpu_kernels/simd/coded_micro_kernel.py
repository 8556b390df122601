"""The micro-kernel of products with codes: a tile of sums held in registers, group by group.

As in `simd/micro_kernel.py`, each word of the left rows is spread over a vector and multiplied with
the words of a panel's rows, which are decoded first. The sums of a group begin at 0. Then they are
scaled and added to the totals:

    total += scale * sum
    total += minimum * (sum of x over the group's columns)

Scales and minimums may be bytes: then they are multiplied with outer ones first.
"""

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cpu_kernels.simd.coded_scales import Scales
from cpu_kernels.simd.coded_words import Decoded
from cpu_kernels.simd.micro_kernel import VECTORS
from cpu_kernels.simd.vectors import (
    BYTES,
    FLOAT,
    FLOATS,
    LANES,
    LONG,
    madd_values,
    masked_load,
    masked_store,
    prefetch_at,
    smaller,
    spread_value,
)
from cpu_kernels.simd.words import Floats, load_at


class Tile(NamedTuple):
    """The arguments of a micro-kernel, integers of 64 bits. Steps are in bytes.

    Attributes:
        left, left_step: address of the first row of x, and step to the next.
        last: index of the last row; rows after it repeat it.
        codes, codes_step: address of the first group's codes, and step to the next group's.
        heads, heads_step: the same of the scales and minimums.
        outer: address of the outer scales and minimums of x's first block of columns; 0: none.
        group, columns_of_x: columns in a group, and in all groups.
        first: the first group's first column of x.
        scales: FLOAT32 or FLOAT16, of scales and minimums, or of the outer ones.
        minimums: 1 if there are minimums, otherwise 0.
        table: address of the vector of numbers that codes of 4 bits stand for.
        sums, sums_step: address of the sums of the first row of x over the columns of each group,
            float32, and step to the next row's.
        out, out_step: address of the first row of totals, float32, and step to the next.
        columns: number of columns to write.
        more: 0 to overwrite out, 1 to add to it.
        ahead: distance from a line of codes to the line to prefetch with it.
        apart: distance from the panel to the one that is multiplied with it.
        decoded: where the decoded words go, side by side, if the micro-kernel keeps them.
    """

    left: int
    left_step: int
    last: int
    codes: int
    codes_step: int
    heads: int
    heads_step: int
    outer: int
    group: int
    columns_of_x: int
    first: int
    scales: int
    minimums: int
    table: int
    sums: int
    sums_step: int
    out: int
    out_step: int
    columns: int
    more: int
    ahead: int
    apart: int
    decoded: int


def micro_kernel_of(
    rows: int, codes: type[Decoded], words: type[Floats], *, panels: int = 1, keep: bool = False
) -> Any:
    """Makes a function of a `Tile`: out [rows, panels * COLUMNS] = or += left @ panels.T.

    Args:
        rows: rows of a full tile.
        codes: how the panel's codes are decoded.
        words: how the numbers of x are held.
        panels: how many to multiply at once, all of one kind, `apart` from each other.
        keep: whether to write the decoded words to memory as well.
    """

    @intrinsic
    def micro_kernel(context: Any, tile: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            values = cgutils.unpack_tuple(builder, arguments[0], len(Tile._fields))
            _Emitter(builder, Tile(*values), rows, codes, words, panels, keep).emit()
            return context.get_dummy_value()

        return types.none(tile), generate

    return micro_kernel


class _Emitter:
    """Emits one micro-kernel."""

    def __init__(
        self,
        builder: Any,
        tile: Tile,
        rows: int,
        codes: type[Decoded],
        words: type[Floats],
        panels: int,
        keep: bool,
    ):
        self.builder, self.tile, self.panels, self.keep = builder, tile, panels, keep
        self.vectors = VECTORS * panels
        self.words = words(builder)
        self.codes = codes(builder, words, load_at(builder, tile.table, FLOATS))
        self.line_columns = codes.columns(words)
        self.line_words = self.line_columns // words.numbers
        chosen = [smaller(builder, LONG(row), tile.last) for row in range(rows)]
        self.lefts = self._rows(chosen, tile.left, tile.left_step)
        self.sums_of_x = self._rows(chosen, tile.sums, tile.sums_step)
        self.outs = self._rows(chosen, tile.out, tile.out_step)
        self.sums, self.totals = self._variables(), self._variables()
        self.scales = Scales(builder, tile, panels)

    def _rows(self, chosen: list[Any], start: Any, step: Any) -> list[Any]:
        return [self.builder.add(start, self.builder.mul(row, step)) for row in chosen]

    def _variables(self) -> list[list[Any]]:
        """A variable for each row and each 16 columns, which LLVM keeps in registers."""
        columns = range(self.vectors)
        return [[cgutils.alloca_once(self.builder, FLOATS) for _ in columns] for _ in self.lefts]

    def emit(self) -> None:
        builder, tile = self.builder, self.tile
        self._begin()
        whole = builder.add(tile.columns_of_x, builder.sub(tile.group, LONG(1)))
        groups = builder.sdiv(whole, tile.group)
        with cgutils.for_range(builder, groups) as loop:
            first = builder.mul(loop.index, tile.group)
            size = smaller(builder, tile.group, builder.sub(tile.columns_of_x, first))
            self._add_up(loop.index, first, size)
            self._scale(loop.index, builder.add(tile.first, first))
        self._write()

    def _add_up(self, group: Any, first: Any, size: Any) -> None:
        """Computes the sums of a group, whose first column of x is `first`."""
        builder, tile = self.builder, self.tile
        for row in self.sums:
            for total in row:
                builder.store(ir.Constant(FLOATS, None), total)
        codes = builder.add(tile.codes, builder.mul(group, tile.codes_step))
        step = self.words.step // self.words.numbers
        offset = builder.mul(first, LONG(step))
        lines = builder.sdiv(size, LONG(self.line_columns))
        with cgutils.for_range(builder, lines) as loop:
            line = builder.add(codes, builder.mul(loop.index, LONG(self.codes.line_bytes)))
            starts = [line, builder.add(line, tile.apart)][: self.panels]
            for start in starts:
                for byte in range(0, self.codes.prefetched, BYTES):
                    prefetch_at(builder, builder.add(builder.add(start, tile.ahead), LONG(byte)))
            of_line = builder.mul(loop.index, LONG(self.words.step * self.line_words))
            place = builder.add(offset, of_line)
            of_panels = zip(*map(self.codes.line, starts), strict=True)
            for number, vectors in enumerate(of_panels):
                of_word = builder.add(place, LONG(self.words.step * number))
                ours = [vector for of_panel in vectors for vector in of_panel]
                self._add_word(of_word, ours)
                if self.keep:
                    self._keep_word(of_word, ours)

    def _add_word(self, place: Any, ours: list[Any]) -> None:
        builder = self.builder
        for left, row in zip(self.lefts, self.sums, strict=True):
            (theirs,) = self.words.left(builder.add(left, place))
            for vector, total in zip(ours, row, strict=True):
                builder.store(self.words.madd(theirs, vector, builder.load(total)), total)

    def _keep_word(self, place: Any, ours: list[Any]) -> None:
        """Writes decoded words as `Decoded` reads them; `place` is that of x's word in a row."""
        builder, times = self.builder, LONG(VECTORS * BYTES // self.words.step)
        start = builder.add(self.tile.decoded, builder.mul(place, times))
        for v, vector in enumerate(ours):
            at = builder.add(start, LONG(BYTES * v))
            builder.store(vector, builder.inttoptr(at, FLOATS.as_pointer()), align=4)

    def _scale(self, group: Any, column: Any) -> None:
        """Adds a group's sums, scaled, to the totals; `column` is its first column of x."""
        builder, tile = self.builder, self.tile
        head = builder.add(tile.heads, builder.mul(group, tile.heads_step))
        scales, head, block = self.scales.load(head, self.scales.outer_at(column))
        lowest = builder.icmp_signed("!=", tile.minimums, LONG(0))
        with builder.if_else(lowest, likely=False) as (yes, no):
            with yes:
                minimums, _, _ = self.scales.load(head, block)
                for row, place in enumerate(self.sums_of_x):
                    at = builder.add(place, builder.mul(group, LONG(4)))
                    factor = spread_value(builder, load_at(builder, at, FLOAT))
                    for v, (scale, minimum) in enumerate(zip(scales, minimums, strict=True)):
                        total = self._scaled(row, v, scale)
                        total = madd_values(builder, minimum, factor, total)
                        builder.store(total, self.totals[row][v])
            with no:
                for row, totals in enumerate(self.totals):
                    for v, scale in enumerate(scales):
                        builder.store(self._scaled(row, v, scale), totals[v])

    def _scaled(self, row: int, vector: int, scale: Any) -> Any:
        """A total with the group's sum, scaled."""
        total, factor = self.totals[row][vector], self.sums[row][vector]
        return madd_values(self.builder, scale, self.builder.load(factor), self.builder.load(total))

    def _begin(self) -> None:
        """Totals begin at 0, or as they are in memory."""
        builder = self.builder
        with builder.if_else(builder.icmp_signed("!=", self.tile.more, LONG(0))) as (yes, no):
            with yes:
                for pointer, count, total in self._places():
                    found = masked_load(builder, pointer, FLOATS, "f32", count, 4)
                    builder.store(found, total)
            with no:
                for row in self.totals:
                    for total in row:
                        builder.store(ir.Constant(FLOATS, None), total)

    def _write(self) -> None:
        for pointer, count, total in self._places():
            value = self.builder.load(total)
            masked_store(self.builder, pointer, value, "f32", count, 4)

    def _places(self) -> list[tuple[Any, Any, Any]]:
        """Where each vector of totals goes, how many lanes of it, and its variable."""
        builder, columns = self.builder, self.tile.columns
        counts = [builder.sub(columns, LONG(LANES * v)) for v in range(self.vectors)]
        return [
            (
                builder.inttoptr(builder.add(out, LONG(BYTES * v)), FLOATS.as_pointer()),
                counts[v],
                total,
            )
            for out, row in zip(self.outs, self.totals, strict=True)
            for v, total in enumerate(row)
        ]
