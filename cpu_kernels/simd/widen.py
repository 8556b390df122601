"""Converts sixteen numbers of a narrow type to float32.

Integer operations move the bits to where float32 has them, so no processor needs an instruction
for the conversion.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.structs import BFLOAT16, FLOAT16, FLOAT32, INT8
from cpu_kernels.simd.vectors import (
    FLOATS,
    INTS,
    LANES,
    load,
    load_some,
    masked_load,
    operation,
    place,
    prefetch,
    same,
    store,
    vector,
)

DTYPES = ("float32", "bfloat16", "float16", "int8", "float8_e4m3fn")


def _bits(builder: Any, address: Any, count: Any, width: int) -> Any:
    """Loads 16 numbers of 8 or 16 bits, zero-extended to int32, or the first `count` of them."""
    kind = ir.VectorType(ir.IntType(width), LANES)
    pointer = builder.inttoptr(address, kind.as_pointer())
    if count is None:
        return builder.zext(builder.load(pointer, align=width // 8), INTS)
    found = masked_load(builder, pointer, kind, f"i{width}", count, width // 8)
    return builder.zext(found, INTS)


def _small_float(builder: Any, bits: Any, width: int, fraction: int, bias: int) -> Any:
    """Converts floats of `width` bits with `fraction` bits of fraction and this exponent bias.

    The caller handles exponents of all ones.
    """
    rest = builder.and_(bits, same((1 << (width - 1)) - 1))
    sign = builder.shl(builder.and_(bits, same(1 << (width - 1))), same(32 - width))
    normal = builder.add(builder.shl(rest, same(23 - fraction)), same((127 - bias) << 23))
    least = ir.Constant(FLOATS, [2.0 ** (1 - bias - fraction)] * LANES)
    subnormal = builder.bitcast(builder.fmul(builder.sitofp(rest, FLOATS), least), INTS)
    subnormals = builder.icmp_unsigned("<", rest, same(1 << fraction))
    return rest, sign, builder.select(subnormals, subnormal, normal)


def _bfloat16(builder: Any, address: Any, count: Any) -> Any:
    bits = builder.shl(_bits(builder, address, count, 16), same(16))
    return builder.bitcast(bits, FLOATS)


def widened_bfloat16(builder: Any, address: Any) -> Any:
    """Emits a load of 16 bfloat16, widened to float32."""
    return _bfloat16(builder, address, None)


def widened_int8(builder: Any, address: Any) -> Any:
    """The same of int8."""
    return _int8(builder, address, None)


def widened_float8(builder: Any, address: Any) -> Any:
    """The same of float8_e4m3fn."""
    return _float8(builder, address, None)


def _float16(builder: Any, address: Any, count: Any) -> Any:
    return float16_of_bits(builder, _bits(builder, address, count, 16))


def float16_of_bits(builder: Any, bits: Any) -> Any:
    """Emits the float32 of 16 float16, whose bits are those of int32."""
    rest, sign, number = _small_float(builder, bits, 16, 10, 15)
    # The largest exponent means infinity or NaN, as in float32.
    special = builder.icmp_unsigned(">=", rest, same(0x7C00))
    number = builder.select(special, builder.add(number, same(112 << 23)), number)
    return builder.bitcast(builder.or_(number, sign), FLOATS)


def _float8(builder: Any, address: Any, count: Any) -> Any:
    return float8_of_bits(builder, _bits(builder, address, count, 8))


def float8_of_bits(builder: Any, bits: Any) -> Any:
    """Emits the float32 of 16 float8_e4m3fn, whose bits are those of int32."""
    rest, sign, number = _small_float(builder, bits, 8, 3, 7)
    # The type has one NaN and no infinity.
    number = builder.select(builder.icmp_unsigned("==", rest, same(0x7F)), same(0x7FC00000), number)
    return builder.bitcast(builder.or_(number, sign), FLOATS)


def _int8(builder: Any, address: Any, count: Any) -> Any:
    bits = builder.shl(_bits(builder, address, count, 8), same(24))
    return builder.sitofp(builder.ashr(bits, same(24)), FLOATS)


def _loads(emit: Callable[..., Any]) -> tuple[Any, Any]:
    """Makes two loads: of all 16 numbers, and of the first few."""
    all_of_them = operation(vector, place)(lambda builder, address: emit(builder, address, None))
    return all_of_them, operation(vector, place, place)(emit)


_all_bfloat16, _some_bfloat16 = _loads(_bfloat16)
load_bfloat16 = _all_bfloat16
_all_float16, _some_float16 = _loads(_float16)
_all_int8, _some_int8 = _loads(_int8)
_all_float8, _some_float8 = _loads(_float8)


@inner
def item_bytes(kind: int) -> int:
    """Size in bytes of a number of this type."""
    if kind == FLOAT32:
        return 4
    return 2 if kind in (BFLOAT16, FLOAT16) else 1


@inner
def widen(kind: int, address: int) -> Any:
    """Loads 16 numbers at an address as float32."""
    if kind == FLOAT32:
        return load(address)
    if kind == BFLOAT16:
        return _all_bfloat16(address)
    if kind == FLOAT16:
        return _all_float16(address)
    if kind == INT8:
        return _all_int8(address)
    return _all_float8(address)


@inner
def widen_some(kind: int, address: int, count: int) -> Any:
    """Loads the first `count` of 16 numbers at an address as float32, and zeros after them."""
    if kind == FLOAT32:
        return load_some(address, count)
    if kind == BFLOAT16:
        return _some_bfloat16(address, count)
    if kind == FLOAT16:
        return _some_float16(address, count)
    if kind == INT8:
        return _some_int8(address, count)
    return _some_float8(address, count)


def _run_loop(load_all: Any, width: int) -> Any:
    """Makes a Numba function that converts `count` numbers, a multiple of 16, of `width` bytes."""

    @inner
    def loop(source: int, count: int, place: int, ahead: int) -> None:
        for i in range(0, count, LANES):
            start = source + width * i
            prefetch(start + ahead)
            store(place + 4 * i, load_all(start))

    return loop


_bfloat16_run, _float16_run = _run_loop(_all_bfloat16, 2), _run_loop(_all_float16, 2)
_int8_run, _float8_run = _run_loop(_all_int8, 1), _run_loop(_all_float8, 1)


@inner
def widen_run(kind: int, source: int, count: int, place: int, ahead: int) -> None:
    """Converts `count` numbers, a multiple of 16, to float32 at `place`; tests the type only once.

    Args:
        ahead: distance in bytes from a number to the one to prefetch with it.
    """
    if kind == BFLOAT16:
        _bfloat16_run(source, count, place, ahead)
    elif kind == FLOAT16:
        _float16_run(source, count, place, ahead)
    elif kind == INT8:
        _int8_run(source, count, place, ahead)
    else:
        _float8_run(source, count, place, ahead)
