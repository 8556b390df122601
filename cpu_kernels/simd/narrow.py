"""Stores sixteen float32 as they are, rounded to the nearest bfloat16, or as int8.

Rows that are rounded to int8 are divided by a scale first, which their largest magnitude gives.
"""

from typing import Any

from llvmlite import ir
from numba import types

from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.structs import BFLOAT16
from cpu_kernels.simd.vectors import (
    FLOAT,
    FLOATS,
    INT,
    INTS,
    LANES,
    call,
    masked_store,
    operation,
    place,
    real,
    same,
    store,
    store_some,
    vector,
)

SHORTS = ir.VectorType(ir.IntType(16), LANES)
CODES = ir.VectorType(ir.IntType(8), LANES)
# Adding it leaves a number's nearest integer, ties to even, in the lowest bits; with a sign, since
# another power of two is above it.
ROUNDER = 12582912.0  # 1.5 * 2**23


def _rounded(builder: Any, value: Any) -> Any:
    """Rounds to bfloat16, the upper halves of the bits: to nearest, ties to even; NaN stays NaN.

    LLVM's own conversion calls a function that does not exist, except on the newest processors.
    """
    bits = builder.bitcast(value, INTS)
    odd = builder.and_(builder.lshr(bits, same(16)), same(1))
    nearest = builder.lshr(builder.add(builder.add(bits, same(0x7FFF)), odd), same(16))
    isnan = builder.fcmp_unordered("uno", value, value)
    return builder.trunc(builder.select(isnan, same(0x7FC0), nearest), SHORTS)


@operation(types.void, place, vector)
def _store_bfloat16(builder: Any, address: Any, value: Any) -> Any:
    builder.store(_rounded(builder, value), builder.inttoptr(address, SHORTS.as_pointer()), align=2)


@operation(types.void, place, vector, place)
def _store_some_bfloat16(builder: Any, address: Any, value: Any, count: Any) -> Any:
    pointer = builder.inttoptr(address, SHORTS.as_pointer())
    masked_store(builder, pointer, _rounded(builder, value), "i16", count, 2)


@inner
def store_as(kind: int, address: int, value: Any, count: int) -> None:
    """Writes the first `count` of 16 numbers in the dtype with this XLA number."""
    if kind == BFLOAT16:
        if count >= LANES:
            _store_bfloat16(address, value)
        else:
            _store_some_bfloat16(address, value, count)
    elif count >= LANES:
        store(address, value)
    else:
        store_some(address, value, count)


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
