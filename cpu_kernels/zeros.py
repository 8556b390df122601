"""An array of zeros that takes no memory until it is written.

XLA fills what it is told to fill, and touching a KV cache of some GiB takes seconds. Here the pages
of a new array are given back to Linux, which hands out a zeroed one when each is first accessed.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from numba import carray, cfunc

from cpu_kernels import ffi
from cpu_kernels.ffi import HANDLER
from cpu_kernels.jit import cached, inner
from cpu_kernels.native import give_back, pointer_at
from cpu_kernels.widen import DTYPES, item_bytes

NAME = "cpu_kernels.zeros"
PAGE = 4096  # where pages are larger, Linux takes none back, and zeros are written


def zeros(shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
    """As `jnp.zeros`, on a CPU; of a KV cache's dtypes in time that does not depend on size."""
    if jnp.dtype(dtype).name not in DTYPES or not sys.platform.startswith("linux"):
        return jnp.zeros(shape, dtype)
    array: jax.Array = jax.jit(jax.ffi.ffi_call(NAME, jax.ShapeDtypeStruct(shape, dtype)))()
    return array


@inner
def _write_zeros(start: int, stop: int) -> None:
    """To the bytes from one address to another."""
    carray(pointer_at(start), (stop - start,), np.uint8)[:] = 0


@inner
def _clear(start: int, stop: int) -> None:
    """The bytes from one address to another are 0 from now on."""
    first, last = -(-start // PAGE) * PAGE, stop // PAGE * PAGE
    if first < last and give_back(first, last - first) == 0:
        _write_zeros(start, first)
        _write_zeros(last, stop)
    else:
        _write_zeros(start, stop)


@cached(cfunc, HANDLER)
def _handler(frame: int) -> int:
    if not ffi.executes(frame):
        return 0
    array = ffi.result(frame, 0)
    count = item_bytes(ffi.dtype(array))
    for axis in range(ffi.rank(array)):
        count *= ffi.size(array, axis)
    start = ffi.address(array)
    _clear(start, start + count)
    return 0


ffi.register(NAME, _handler)
