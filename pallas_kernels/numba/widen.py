"""Sixteen numbers of a narrow type, as the float32 that they stand for.

Bits are moved to where float32 has them; no processor is asked for conversions that it may lack.
"""

from typing import Any

from llvmlite import ir

from pallas_kernels.numba.jit import inner
from pallas_kernels.numba.vectors import (
    FLOATS,
    INTS,
    LANES,
    load_some,
    masked_load,
    operation,
    place,
    vector,
)

# XLA's numbers of element types.
INT8, FLOAT16, FLOAT32, BFLOAT16, FLOAT8 = 2, 10, 11, 16, 20
DTYPES = ("float32", "bfloat16", "float16", "int8", "float8_e4m3fn")


def _same(number: int) -> Any:
    return ir.Constant(INTS, [number] * LANES)


def _bits(builder: Any, address: Any, count: Any, width: int) -> Any:
    """The first `count` numbers of 8 or 16 bits at an address, as int32 without sign."""
    kind = ir.VectorType(ir.IntType(width), LANES)
    pointer = builder.inttoptr(address, kind.as_pointer())
    return builder.zext(masked_load(builder, pointer, kind, f"i{width}", count, width // 8), INTS)


def _small_float(builder: Any, bits: Any, width: int, fraction: int, bias: int) -> Any:
    """Numbers with so many bits, of the fraction among them, and that bias of the exponent.

    What all ones in the exponent mean is left to the caller.
    """
    rest = builder.and_(bits, _same((1 << (width - 1)) - 1))
    sign = builder.shl(builder.and_(bits, _same(1 << (width - 1))), _same(32 - width))
    normal = builder.add(builder.shl(rest, _same(23 - fraction)), _same((127 - bias) << 23))
    least = ir.Constant(FLOATS, [2.0 ** (1 - bias - fraction)] * LANES)
    subnormal = builder.bitcast(builder.fmul(builder.sitofp(rest, FLOATS), least), INTS)
    subnormals = builder.icmp_unsigned("<", rest, _same(1 << fraction))
    return rest, sign, builder.select(subnormals, subnormal, normal)


@operation(vector, place, place)
def _bfloat16(builder: Any, address: Any, count: Any) -> Any:
    bits = builder.shl(_bits(builder, address, count, 16), _same(16))
    return builder.bitcast(bits, FLOATS)


@operation(vector, place, place)
def _float16(builder: Any, address: Any, count: Any) -> Any:
    bits = _bits(builder, address, count, 16)
    rest, sign, number = _small_float(builder, bits, 16, 10, 15)
    # The largest exponent is that of infinity and NaN here, too.
    special = builder.icmp_unsigned(">=", rest, _same(0x7C00))
    number = builder.select(special, builder.add(number, _same(112 << 23)), number)
    return builder.bitcast(builder.or_(number, sign), FLOATS)


@operation(vector, place, place)
def _float8(builder: Any, address: Any, count: Any) -> Any:
    bits = _bits(builder, address, count, 8)
    rest, sign, number = _small_float(builder, bits, 8, 3, 7)
    # One NaN, no infinity.
    number = builder.select(
        builder.icmp_unsigned("==", rest, _same(0x7F)), _same(0x7FC00000), number
    )
    return builder.bitcast(builder.or_(number, sign), FLOATS)


@operation(vector, place, place)
def _int8(builder: Any, address: Any, count: Any) -> Any:
    bits = builder.shl(_bits(builder, address, count, 8), _same(24))
    return builder.sitofp(builder.ashr(bits, _same(24)), FLOATS)


@inner
def item_bytes(kind: int) -> int:
    """Bytes of a number of a type."""
    if kind == FLOAT32:
        return 4
    return 2 if kind in (BFLOAT16, FLOAT16) else 1


@inner
def widen(kind: int, address: int, count: int) -> Any:
    """The first `count` numbers at an address, zeros after them."""
    if kind == FLOAT32:
        return load_some(address, count)
    if kind == BFLOAT16:
        return _bfloat16(address, count)
    if kind == FLOAT16:
        return _float16(address, count)
    if kind == INT8:
        return _int8(address, count)
    return _float8(address, count)
