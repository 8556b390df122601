"""Stores sixteen float32 as they are or rounded to the nearest bfloat16."""

from typing import Any

from llvmlite import ir
from numba import types

from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.structs import BFLOAT16
from cpu_kernels.simd.vectors import (
    INTS,
    LANES,
    masked_store,
    operation,
    place,
    same,
    store,
    store_some,
    vector,
)

SHORTS = ir.VectorType(ir.IntType(16), LANES)


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
