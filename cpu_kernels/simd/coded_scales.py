"""How the scales and minimums of groups of codes are held."""

from typing import Any

from llvmlite import ir

from cpu_kernels.compiling.jit import processor_has
from cpu_kernels.simd.vectors import FLOATS, INTS, LANES
from cpu_kernels.simd.widen import float16_of_bits

FLOAT32, FLOAT16 = 0, 1
HALVES = ir.VectorType(ir.HalfType(), LANES)
OUTER = 256  # columns that share an outer scale and minimum
CONVERTS_FLOAT16 = processor_has("f16c") or processor_has("avx512f")


def widened(builder: Any, bits: Any) -> Any:
    """The float32 of 16 float16."""
    if CONVERTS_FLOAT16:
        return builder.fpext(builder.bitcast(bits, HALVES), FLOATS)
    return float16_of_bits(builder, builder.zext(bits, INTS))
