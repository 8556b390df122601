"""What rounding rows to int8 takes: the largest magnitude, and sixteen codes from quotients."""

from typing import Any

from llvmlite import ir
from numba import types

from cpu_kernels.simd.vectors import (
    FLOAT,
    FLOATS,
    INT,
    INTS,
    LANES,
    call,
    operation,
    place,
    real,
    same,
    vector,
)

CODES = ir.VectorType(ir.IntType(8), LANES)
# Adding it leaves a number's nearest integer, ties to even, in the lowest bits; with a sign, since
# another power of two is above it.
ROUNDER = 12582912.0  # 1.5 * 2**23


def _magnitude(builder: Any, value: Any) -> Any:
    """Bits of |value|. As integers they have the order of the numbers, with NaN above infinity."""
    return builder.and_(builder.bitcast(value, INTS), same(0x7FFFFFFF))


@operation(vector, vector, vector)
def larger_magnitude(builder: Any, a: Any, b: Any) -> Any:
    """The larger of |a| and |b|; NaN if one is NaN."""
    a, b = _magnitude(builder, a), _magnitude(builder, b)
    return builder.bitcast(builder.select(builder.icmp_signed(">", a, b), a, b), FLOATS)


@operation(real, vector)
def largest_magnitude(builder: Any, value: Any) -> Any:
    """The largest of all lanes; NaN if one is NaN."""
    name = f"llvm.vector.reduce.smax.v{LANES}i32"
    return builder.bitcast(call(builder, name, (_magnitude(builder, value),), INT), FLOAT)


@operation(types.void, place, vector)
def store_codes(builder: Any, address: Any, shifted: Any) -> Any:
    """Writes 16 numbers, to which ROUNDER was added, as int8."""
    codes = builder.trunc(builder.bitcast(shifted, INTS), CODES)
    builder.store(codes, builder.inttoptr(address, CODES.as_pointer()), align=1)
