"""SwiGLU's first product and its gate on a CPU: silu(x @ gate.T) * (x @ up.T) in one kernel.

The panels of gate and up take turns. A thread multiplies one of each with some rows of x and gates
what is then still in its own cache: for 2,048 rows the products of both are 25 MB, which would be
written to memory and read again.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from numba import cfunc, njit

from cpu_kernels import ffi, threads
from cpu_kernels.ffi import HANDLER
from cpu_kernels.functions import exp
from cpu_kernels.jit import cached, inner
from cpu_kernels.linear import multiply, words_of
from cpu_kernels.linear_call import chunk_counts, chunk_of, num_tokens, share_chunks
from cpu_kernels.linear_chunk import Chunk
from cpu_kernels.micro_kernel import COLUMNS
from cpu_kernels.narrow import store_as
from cpu_kernels.native import address_of, free, malloc
from cpu_kernels.panels import panel_shape
from cpu_kernels.vectors import (
    LANES,
    add,
    div,
    larger,
    load,
    load_some,
    mul,
    spread,
    sub,
    where_less,
)
from cpu_kernels.widen import item_bytes

NAME = "cpu_kernels.gated_linear"
PARTS = 2  # gate and up
STEP = 4 * PARTS * COLUMNS  # bytes of a row's products of one panel of each


def gated_linear(
    x: Float[Array, "T in"],
    panels: Float[Array, "panels words columns"] | Float[Array, "L panels words columns"],
    bias: Float[Array, " two_F"] | None = None,
    *,
    width: int,
    layer: Int[Array, ""],
    num_rows: Int[Array, ""],
    dtype: jnp.dtype,
) -> Float[Array, "T width"]:
    """silu(x @ gate.T) * (x @ up.T) in float32, rounded once to `dtype`: float32 or bfloat16.

    Args:
        x: is rounded to the type of the weight, if it has another.
        panels: the weight [2 * width, in], the gate's rows and then those of up, float32 or
            bfloat16, as `pack_panels` lays it out in two parts; or a stack of them.
        bias: added to the products before the gate; None: nothing is.
        layer: which of the stack; a number beyond the ends is taken for the nearest.
        num_rows: how many rows of x are wanted; the others are zeros.

    Raises:
        ValueError: the panels are not those of such a weight.
    """
    expected = panel_shape(PARTS * width, x.shape[1], panels.dtype, PARTS)
    if panels.shape[-3:] != expected:
        raise ValueError(
            f"panels of gate and up [{PARTS * width}, {x.shape[1]}] must be {expected}, "
            f"got {panels.shape}"
        )
    stack = panels if panels.ndim == 4 else panels[None]
    added = jnp.zeros(0) if bias is None else bias.astype(jnp.float32)
    result = jax.ShapeDtypeStruct((x.shape[0], width), dtype)
    call = jax.ffi.ffi_call(NAME, result)
    out: Array = call(words_of(x, panels.dtype), stack, layer, num_rows, added)
    return out


@inner
def _gated(gate: Any, up: Any) -> Any:
    """silu(gate) * up; exp is only asked for what is not positive."""
    zero, one = spread(0.0), spread(1.0)
    small = exp(sub(zero, larger(gate, sub(zero, gate))))
    share = div(where_less(gate, zero, small, one), add(one, small))
    return mul(mul(gate, share), up)


@inner
def _gate(frame: int, chunk: Chunk, pair: int, products: int) -> None:
    """Gates the products of a chunk's panel of gate with those of its panel of up."""
    out, bias = ffi.result(frame, 0), ffi.operand(frame, 4)
    kind, item = ffi.dtype(out), item_bytes(ffi.dtype(out))
    first, width, added = COLUMNS * pair, ffi.size(out, 1), ffi.size(bias, 0) > 0
    start = ffi.address(bias) + 4 * (width - chunk.columns + first)
    for row in range(chunk.tokens):
        for at in range(0, min(COLUMNS, chunk.columns - first), LANES):
            count = chunk.columns - first - at
            here = products + STEP * row + 4 * at
            gate, up = load(here), load(here + 4 * COLUMNS)
            if added:
                gate = add(gate, load_some(start + 4 * at, count))
                up = add(up, load_some(start + 4 * (width + at), count))
            place = chunk.out + row * chunk.out_step + item * (first + at)
            store_as(kind, place, _gated(gate, up), count)


@inner
def _multiply_and_gate(frame: int, chunk: Chunk, products: int) -> None:
    """Pair by pair of panels, whose products lie side by side in memory of the thread's own."""
    pairs = chunk.num_panels // PARTS
    for pair in range(pairs):
        both = Chunk(
            chunk.panels + PARTS * pair * chunk.panel_step,
            chunk.x,
            products,
            PARTS,
            chunk.goes_on or pair + 1 < pairs,
            PARTS * COLUMNS,
            chunk.tokens,
            chunk.words,
            chunk.panel_step,
            chunk.x_step,
            STEP,
        )
        multiply(frame, both)
        _gate(frame, chunk, pair, products)


@cached(njit, "int64(int64)")
def _task(block: int) -> int:
    seat, products = threads.sit_down(block), 0
    while True:
        number, others = threads.claim_next(block, seat)
        if number < 0:
            if products != 0:
                free(products)
            return threads.leave(block)
        frame = threads.frame_of(block)
        if products == 0:
            _, of_x = chunk_counts(frame, PARTS)
            products = malloc(STEP * ((num_tokens(frame) + of_x - 1) // of_x))
        _multiply_and_gate(frame, chunk_of(frame, number, others, PARTS), products)
        threads.done(block)


@cached(cfunc, HANDLER)
def _handler(frame: int) -> int:
    if not ffi.executes(frame):
        return 0
    return share_chunks(frame, PARTS, address_of(_task))


ffi.register(NAME, _handler)
