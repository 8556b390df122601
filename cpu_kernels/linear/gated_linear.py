"""SwiGLU's first product and its gate on a CPU: silu(x @ gate.T) * (x @ up.T) in one kernel.

The panels of gate and up alternate. A thread multiplies one of each with some rows of x and gates
the products while they are in its own cache. Two kernels would write the products to memory and
read them again: 25 MB for 2,048 rows of SmolLM2.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.compiling.jit import inner
from cpu_kernels.linear.chunks import chunk_counts, chunk_of, clear_padding, num_tokens
from cpu_kernels.linear.linear import multiply, words_of
from cpu_kernels.linear.panels import panel_shape
from cpu_kernels.linear.tiles import Chunk
from cpu_kernels.simd.functions import exp
from cpu_kernels.simd.micro_kernel import COLUMNS
from cpu_kernels.simd.narrow import store_as
from cpu_kernels.simd.vectors import (
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
from cpu_kernels.simd.widen import item_bytes

NAME = "cpu_kernels.gated_linear"
PARTS = 2  # gate and up
STEP = 4 * PARTS * COLUMNS  # bytes of a row's products with one panel of gate and one of up


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
        x: rounded to the weight's dtype if it has another.
        panels: the weight [2 * width, in], the rows of gate and then those of up, float32 or
            bfloat16, packed by `pack_panels` in two parts; or a stack of such weights.
        bias: added to the products before the gate; None adds nothing.
        width: F, the number of columns of gate and of up.
        layer: index into the stack; clipped to its ends.
        num_rows: number of rows of x to compute; the result has zeros for the others.
        dtype: of the result.

    Raises:
        ValueError: the panels do not have the shape of such a weight.
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
    """silu(gate) * up, without exp of a positive number."""
    zero, one = spread(0.0), spread(1.0)
    small = exp(sub(zero, larger(gate, sub(zero, gate))))
    share = div(where_less(gate, zero, small, one), add(one, small))
    return mul(mul(gate, share), up)


@inner
def _gate(call: Any, chunk: Chunk, pair: int, products: int) -> None:
    """Gates the products of one panel of gate and one of up, and stores the results."""
    kind, width, added = call.out.dtype, call.out.shape[1], call.bias.shape[0] > 0
    item, first = item_bytes(kind), COLUMNS * pair
    start = call.bias.address + 4 * (width - chunk.columns + first)
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
def _chunks(call: Any) -> int:
    clear_padding(call)
    of_panels, of_x = chunk_counts(call, PARTS)
    return of_panels * of_x


@inner
def _products_bytes(call: Any) -> int:
    """Bytes for the products of a chunk's rows with one panel of gate and one of up."""
    _, of_x = chunk_counts(call, PARTS)
    return STEP * ((num_tokens(call) + of_x - 1) // of_x)


@cpu_kernel(
    NAME,
    operands="x panels layer num_rows bias",
    results="out",
    items=_chunks,
    scratch=_products_bytes,
    neighbours=True,
)
@inner
def _chunk(call: Any, item: int, products: int) -> None:
    """Multiplies and gates pairs of panels, with the products in the thread's own memory."""
    chunk = chunk_of(call, item, PARTS)
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
        multiply(call, both)
        _gate(call, chunk, pair, products)
