"""An array of zeros that takes no memory until it is written.

XLA would write the zeros, which takes seconds for a KV cache of some GiB. This kernel returns the
pages of a new array to Linux, which provides a zeroed page at each first access.
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
PAGE = 4096  # with larger pages `give_back` fails, and the kernel writes zeros


def zeros(shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
    """`jnp.zeros` on a CPU; for a KV cache's dtypes on Linux, in a time independent of the size."""
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
