"""How the scales and minimums of groups of codes are held, and how a micro-kernel loads them."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from cpu_kernels.compiling.jit import processor_has
from cpu_kernels.simd.micro_kernel import COLUMNS, VECTORS
from cpu_kernels.simd.vectors import FLOATS, INTS, LANES, LONG
from cpu_kernels.simd.widen import float16_of_bits
from cpu_kernels.simd.words import load_at

FLOAT32, FLOAT16 = 0, 1
OUTER = 256  # columns that share an outer scale and minimum
BYTES_16, SHORTS = (ir.VectorType(ir.IntType(bits), LANES) for bits in (8, 16))
HALVES = ir.VectorType(ir.HalfType(), LANES)
CONVERTS_FLOAT16 = processor_has("f16c") or processor_has("avx512f")


def widened(builder: Any, bits: Any) -> Any:
    """The float32 of 16 float16."""
    if CONVERTS_FLOAT16:
        return builder.fpext(builder.bitcast(bits, HALVES), FLOATS)
    return float16_of_bits(builder, builder.zext(bits, INTS))


class Scales:
    """Emits loads of scales: for each panel of a tile, a vector for every 16 of its rows."""

    def __init__(self, builder: Any, tile: Any, panels: int):
        self.builder, self.tile = builder, tile
        self.narrow = builder.icmp_signed("==", tile.scales, LONG(FLOAT16))
        item = builder.select(self.narrow, LONG(2), LONG(4))
        self.item = builder.mul(item, LONG(COLUMNS))
        self.found = [cgutils.alloca_once(builder, FLOATS) for _ in range(VECTORS * panels)]

    def outer_at(self, column: Any) -> Any:
        """Where the outer scales of a column of x are."""
        builder, tile = self.builder, self.tile
        block = builder.lshr(column, LONG(OUTER.bit_length() - 1))
        step = builder.mul(self.item, builder.add(tile.minimums, LONG(1)))
        return builder.add(tile.outer, builder.mul(block, step))

    def load(self, place: Any, outer: Any) -> tuple[list[Any], Any, Any]:
        """Loads the scales at an address as float32, and says where they and the outer ones end.

        Args:
            place: address of the group's scales or minimums.
            outer: address of the outer ones.
        """
        builder = self.builder
        two = builder.icmp_signed("!=", self.tile.outer, LONG(0))
        self._load_floats(builder.select(two, outer, place))
        with builder.if_then(two):
            for v, scale in enumerate(self.found):
                small = builder.sext(load_at(builder, self._after(place, v, 1), BYTES_16), INTS)
                inner = builder.sitofp(small, FLOATS)
                builder.store(builder.fmul(inner, builder.load(scale)), scale)
        step = builder.select(two, LONG(COLUMNS), self.item)
        values = [builder.load(scale) for scale in self.found]
        return values, builder.add(place, step), builder.add(outer, self.item)

    def _load_floats(self, place: Any) -> None:
        """Loads scales that are float32 or float16."""
        builder = self.builder
        with builder.if_else(self.narrow) as (yes, no):
            with yes:
                for v, scale in enumerate(self.found):
                    bits = load_at(builder, self._after(place, v, 2), SHORTS)
                    builder.store(widened(builder, bits), scale)
            with no:
                for v, scale in enumerate(self.found):
                    builder.store(load_at(builder, self._after(place, v, 4), FLOATS), scale)

    def _after(self, place: Any, vector: int, item: int) -> Any:
        """Where the scales of 16 rows are, `item` bytes each, in the panel that has the rows."""
        panel, vector = divmod(vector, VECTORS)
        start = self.builder.add(place, self.tile.apart) if panel else place
        return self.builder.add(start, LONG(item * LANES * vector))
