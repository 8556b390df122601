"""Reads and writes single numbers of a few bytes, at any address."""

from typing import Any

from llvmlite import ir
from numba import types

from cpu_kernels.simd.vectors import operation


@operation(types.intp, types.intp)
def read_eight(builder: Any, address: Any) -> Any:
    """Eight bytes, the first in the lowest bits."""
    return builder.load(builder.inttoptr(address, ir.IntType(64).as_pointer()), align=1)


@operation(types.intp, types.intp)
def read_one(builder: Any, address: Any) -> Any:
    """One byte."""
    pointer = builder.inttoptr(address, ir.IntType(8).as_pointer())
    return builder.zext(builder.load(pointer), ir.IntType(64))


def _writes(width: int) -> Any:
    """Makes a function that writes the lowest bits of a number to an address."""

    @operation(types.void, types.intp, types.intp)
    def write(builder: Any, address: Any, value: Any) -> Any:
        kind = ir.IntType(width)
        pointer = builder.inttoptr(address, kind.as_pointer())
        builder.store(builder.trunc(value, kind), pointer, align=1)

    return write


write_word, write_short = _writes(32), _writes(16)
