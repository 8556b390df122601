"""Products with a weight in panels, or with one layer's out of a stack: x @ weight.T.

A stack is passed whole with the number of the layer, so nothing is copied out of it. The work is
cut into chunks of some panels of weights and some rows of x. All sums run over a row's numbers in
the same order: a row's products depend neither on how many rows there are, nor on what these hold,
nor on the threads.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int
from numba import cfunc, njit

from cpu_kernels import ffi, threads
from cpu_kernels.ffi import HANDLER
from cpu_kernels.jit import cached, inner
from cpu_kernels.linear_call import chunk_of, is_bfloat16, share_chunks
from cpu_kernels.linear_chunk import Chunk, multiply_of
from cpu_kernels.native import address_of
from cpu_kernels.panels import panel_shape
from cpu_kernels.words import BFLOAT16_WORDS, MULTIPLIES_PAIRS, Floats

NAME = "cpu_kernels.linear_panels"
_multiply_float32 = multiply_of(Floats)
_multiply_bfloat16 = multiply_of(BFLOAT16_WORDS)


def linear(
    x: Float[Array, "T in"],
    panels: Float[Array, "panels words columns"] | Float[Array, "L panels words columns"],
    *,
    width: int,
    layer: Int[Array, ""] | None = None,
    num_rows: Int[Array, ""] | None = None,
) -> Float[Array, "T width"]:
    """x @ weight.T in float32, on a CPU; of a stack, with the weight of one layer.

    Args:
        x: is rounded to the type of the weight, if it has another.
        panels: the weight [width, in], float32 or bfloat16, as `pack_panels` lays it out.
        layer: which of a stack, int32; a number beyond the ends is taken for the nearest.
        num_rows: how many rows of x are multiplied, int32; the result has zeros for the others,
            so padding costs nothing.

    Raises:
        ValueError: the panels are not those of a weight [width, in].
    """
    expected = panel_shape(width, x.shape[1], panels.dtype)
    if panels.shape[-3:] != expected:
        raise ValueError(
            f"panels of a weight [{width}, {x.shape[1]}] must be {expected}, got {panels.shape}"
        )
    stack = panels if panels.ndim == 4 else panels[None]
    index = jnp.zeros((), jnp.int32) if layer is None else layer
    count = jnp.int32(x.shape[0]) if num_rows is None else num_rows
    result = jax.ShapeDtypeStruct((x.shape[0], width), jnp.float32)
    out: Array = jax.ffi.ffi_call(NAME, result)(words_of(x, panels.dtype), stack, index, count)
    return out


def words_of(x: Float[Array, "T in"], dtype: jnp.dtype) -> Array:
    """x in the type of the weight, of whole words, and widened where that is how it is multiplied.

    XLA would leave out a conversion there and back.
    """
    if dtype == jnp.float32:
        return x.astype(dtype)
    x = jnp.pad(x, ((0, 0), (0, x.shape[1] % 2)))
    if MULTIPLIES_PAIRS:
        return x.astype(dtype)
    return lax.reduce_precision(x.astype(jnp.float32), exponent_bits=8, mantissa_bits=7)


@inner
def multiply(frame: int, chunk: Chunk) -> None:
    """All products of a chunk, in the type of the call's weights."""
    if is_bfloat16(frame):
        _multiply_bfloat16(chunk)
    else:
        _multiply_float32(chunk)


@cached(njit, "int64(int64)")
def _task(block: int) -> int:
    seat = threads.sit_down(block)
    while True:
        number, others = threads.claim_next(block, seat)
        if number < 0:
            return threads.leave(block)
        frame = threads.frame_of(block)
        multiply(frame, chunk_of(frame, number, others, 1))
        threads.done(block)


@cached(cfunc, HANDLER)
def _handler(frame: int) -> int:
    if not ffi.executes(frame):
        return 0
    return share_chunks(frame, 1, address_of(_task))


ffi.register(NAME, _handler)
