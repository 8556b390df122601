"""An array of zeros that takes no memory until it is written.

XLA fills what it is told to fill, and touching a KV cache of some GiB takes seconds. Here the pages
of a new array are given back to Linux, which hands out a zeroed one when each is first accessed.
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.memory import clear, give_back
from cpu_kernels.simd.widen import DTYPES, item_bytes

NAME = "cpu_kernels.zeros"
PAGE = 4096  # where pages are larger, Linux takes none back, and zeros are written


def zeros(shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
    """As `jnp.zeros`, on a CPU; of a KV cache's dtypes in time that does not depend on size."""
    if jnp.dtype(dtype).name not in DTYPES or not sys.platform.startswith("linux"):
        return jnp.zeros(shape, dtype)
    array: jax.Array = jax.jit(jax.ffi.ffi_call(NAME, jax.ShapeDtypeStruct(shape, dtype)))()
    return array


@inner
def _once(call: Any) -> int:
    return 1


@cpu_kernel(NAME, operands="", results="array", items=_once)
@inner
def _zeros(call: Any, item: int) -> None:
    size = item_bytes(call.array.dtype)
    for axis in range(call.array.rank):
        size *= call.array.shape[axis]
    start = call.array.address
    stop = start + size
    first, last = -(-start // PAGE) * PAGE, stop // PAGE * PAGE
    if first < last and give_back(first, last - first) == 0:
        clear(start, first - start)
        clear(last, stop - last)
    else:
        clear(start, size)
