"""Products with packed weights: x @ weight.T.

The kernel receives a whole stack of layers and the index of one, so nothing is copied. A chunk of
work is some panels of the weight with some rows of x. Every sum runs over a row in the same order,
so a row's products depend neither on the other rows nor on the number of threads.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.compiling.jit import inner
from cpu_kernels.linear.chunks import chunk_of, num_chunks, share_of
from cpu_kernels.linear.panels import panel_shape
from cpu_kernels.linear.tiles import MOST_LEAVES, SLOTS_BYTES, Chunk, multiply_of
from cpu_kernels.simd.structs import BFLOAT16, FLOAT16
from cpu_kernels.simd.words import BFLOAT16_WORDS, MULTIPLIES_PAIRS, Floats, WidenedHalves

_LEAVES = tuple(2**power for power in range(MOST_LEAVES.bit_length()))
NAME = "cpu_kernels.linear_in_leaves"
_multiply_float32 = multiply_of(Floats)
_multiply_bfloat16 = multiply_of(BFLOAT16_WORDS)
_multiply_float16 = multiply_of(WidenedHalves)


def linear(
    x: Float[Array, "T in"],
    panels: Float[Array, "panels words columns"] | Float[Array, "L panels words columns"],
    *,
    width: int,
    layer: Int[Array, ""] | None = None,
    num_rows: Int[Array, ""] | None = None,
    leaves: int = 1,
) -> Float[Array, "T width"]:
    """x @ weight.T in float32, for a weight or one layer of a stack of weights.

    Args:
        x: rounded to the weight's dtype if it has another.
        panels: the weight [width, in], float32, bfloat16 or float16, packed by `pack_panels`; or
            a stack.
        width: number of rows of the weight.
        layer: index into the stack, int32; clipped to its ends.
        num_rows: number of rows of x to multiply, int32; the result has zeros for the others,
            so padding costs nothing.
        leaves: a power of two up to MOST_LEAVES: each row of x is cut into so many parts, whose
            sums are added as a tree. Their sizes must be even.

    Raises:
        ValueError: the panels do not have the shape of a weight [width, in], or rows cannot be cut
            into these leaves.
    """
    check_panels(panels, width, x.shape[1])
    if leaves not in _LEAVES or (leaves > 1 and x.shape[1] % (2 * leaves)):
        raise ValueError(
            f"leaves must be one of {_LEAVES}, of even sizes, got {leaves} of {x.shape[1]} numbers"
        )
    stack = panels if panels.ndim == 4 else panels[None]
    index = jnp.zeros((), jnp.int32) if layer is None else layer
    count = jnp.int32(x.shape[0]) if num_rows is None else num_rows
    return product(x, stack, index, count.reshape(1), width, leaves)


def check_panels(panels: Array, width: int, size: int) -> None:
    """Refuses panels that are not those of weights [width, size]."""
    expected = panel_shape(width, size, panels.dtype)
    if panels.shape[-3:] != expected:
        raise ValueError(
            f"panels of a weight [{width}, {size}] must be {expected}, got {panels.shape}"
        )


def product(
    x: Float[Array, "T in"],
    stack: Float[Array, "weights panels words columns"],
    layer: Int[Array, ""],
    ends: Int[Array, " groups"],
    width: int,
    leaves: int = 1,
) -> Float[Array, "T width"]:
    """The kernel: each group's rows by its weight in the layer. `chunks.py` has the operands."""
    result = jax.ShapeDtypeStruct((x.shape[0], width), jnp.float32)
    given = words_of(x, stack.dtype), stack, layer, ends, jnp.int32(leaves)
    out: Array = jax.ffi.ffi_call(NAME, result)(*given)
    return out


def words_of(x: Float[Array, "T in"], dtype: jnp.dtype) -> Array:
    """Casts x to the weight's dtype and pads it to whole words.

    Numbers of float16 are widened again, and those of bfloat16 on CPUs without products of it. XLA
    would drop a cast and the one back, so something stands between them. `reduce_precision` does
    not for float16, whose subnormal numbers it takes for zeros.
    """
    if dtype == jnp.float32:
        return x.astype(dtype)
    x = jnp.pad(x, ((0, 0), (0, x.shape[1] % 2)))
    if dtype == jnp.float16:
        halves: Array = lax.optimization_barrier(x.astype(dtype))
        return halves.astype(jnp.float32)
    if MULTIPLIES_PAIRS:
        return x.astype(dtype)
    return lax.reduce_precision(x.astype(jnp.float32), exponent_bits=8, mantissa_bits=7)


def written(dtype: jnp.dtype) -> jnp.dtype:
    """The dtype in which a kernel writes a result: float16 is rounded from float32 afterwards."""
    return jnp.dtype(jnp.float32) if dtype == jnp.float16 else dtype


@inner
def multiply(call: Any, chunk: Chunk, leaves: int, slots: int) -> None:
    """All products of a chunk, in the dtype of the call's weights; see `multiply_of`."""
    if call.panels.dtype == BFLOAT16:
        _multiply_bfloat16(chunk, leaves, slots)
    elif call.panels.dtype == FLOAT16:
        _multiply_float16(chunk, leaves, slots)
    else:
        _multiply_float32(chunk, leaves, slots)


@inner
def _chunks(call: Any) -> int:
    return num_chunks(call, call.panels.shape[1])


@inner
def _slots_bytes(call: Any) -> int:
    return SLOTS_BYTES if call.leaves.int32[0] > 1 else 0


@cpu_kernel(
    NAME,
    operands="x panels layer ends leaves",
    results="out",
    items=_chunks,
    scratch=_slots_bytes,
    neighbours=True,
)
@inner
def _chunk(call: Any, item: int, slots: int) -> None:
    share = share_of(call, item, call.panels.shape[1])
    multiply(call, chunk_of(call, share, 1), call.leaves.int32[0], slots)
