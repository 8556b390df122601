"""A gated network's first product and its gate on a CPU: activation(x @ gate.T) * (x @ up.T).

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
from cpu_kernels.linear.chunks import Share, chunk_of, most_rows, num_chunks, share_of
from cpu_kernels.linear.gates import ACTIVATIONS, gated
from cpu_kernels.linear.linear import multiply, words_of, written
from cpu_kernels.linear.panels import panel_shape
from cpu_kernels.linear.tiles import Chunk
from cpu_kernels.low_rank.gate import (
    OPERANDS,
    Expand,
    add_expanded,
    expand_bytes,
    operands_of,
)
from cpu_kernels.simd.micro_kernel import COLUMNS
from cpu_kernels.simd.narrow import store_as
from cpu_kernels.simd.vectors import LANES, add, load, load_some
from cpu_kernels.simd.widen import item_bytes

NAME = "cpu_kernels.gated_linear_with_adapters"
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
    activation: str = "silu",
    dtype: jnp.dtype,
    expand: Expand | None = None,
) -> Float[Array, "T width"]:
    """activation(x @ gate.T) * (x @ up.T), rounded once to `dtype`.

    Args:
        x: rounded to the weight's dtype if it has another.
        panels: the weight [2 * width, in], the rows of gate and then those of up, float32,
            bfloat16 or float16, packed by `pack_panels` in two parts; or a stack of such weights.
        bias: added to the products before the gate; None adds nothing.
        width: F, the number of columns of gate and of up.
        layer: index into the stack; clipped to its ends.
        num_rows: number of rows of x to compute; the result has zeros for the others.
        activation: one of `ACTIVATIONS`.
        dtype: of the result.
        expand: what adapters add to the products before the bias; None adds nothing.

    Raises:
        ValueError: the panels do not have the shape of such a weight.
    """
    check_gated_panels(panels, width, x.shape[1])
    stack = panels if panels.ndim == 4 else panels[None]
    added = jnp.zeros(0) if bias is None else bias.astype(jnp.float32)
    ends = num_rows.reshape(1)
    return gated_product(x, stack, layer, ends, added, width, activation, dtype, expand)


def check_gated_panels(panels: Array, width: int, size: int) -> None:
    """Refuses panels that are not those of gate and up, each [width, size]."""
    expected = panel_shape(PARTS * width, size, panels.dtype, PARTS)
    if panels.shape[-3:] != expected:
        raise ValueError(
            f"panels of gate and up [{PARTS * width}, {size}] must be {expected}, "
            f"got {panels.shape}"
        )


def gated_product(
    x: Float[Array, "T in"],
    stack: Float[Array, "weights panels words columns"],
    layer: Int[Array, ""],
    ends: Int[Array, " groups"],
    added: Float[Array, " biases"],
    width: int,
    activation: str,
    dtype: jnp.dtype,
    expand: Expand | None = None,
) -> Float[Array, "T width"]:
    """The kernel: each group's rows by its weight in the layer. `chunks.py` has the operands.

    Args:
        added: [groups * 2 * width], or empty.
    """
    result = jax.ShapeDtypeStruct((x.shape[0], width), written(dtype))
    number = jnp.int32(ACTIVATIONS.index(activation))
    call = jax.ffi.ffi_call(NAME, result)
    given = words_of(x, stack.dtype), stack, layer, ends, added, number
    out: Array = call(*given, *operands_of(expand))
    return out.astype(dtype)


@inner
def pair_of(chunk: Chunk, pair: int, products: int) -> Chunk:
    """One panel of gate and one of up, with the products in the thread's own memory."""
    return Chunk(
        chunk.panels + PARTS * pair * chunk.panel_step,
        chunk.x,
        products,
        PARTS,
        chunk.goes_on or pair + 1 < chunk.num_panels // PARTS,
        PARTS * COLUMNS,
        chunk.tokens,
        chunk.words,
        chunk.panel_step,
        chunk.x_step,
        STEP,
    )


@inner
def bias_of(call: Any, share: Share) -> int:
    """Address of the biases of a share's first gate, or 0 if there are none."""
    if call.bias.shape[0] == 0:
        return 0
    first = PARTS * call.out.shape[1] * share.group + COLUMNS * share.panel
    return call.bias.address + 4 * first


@inner
def gate_pair(call: Any, chunk: Any, bias: int, pair: int, products: int) -> None:
    """Gates the products of one panel of gate and one of up, and stores the results.

    Args:
        call: has the result `out`, and the operand `activation`.
        chunk: has the fields `out`, `out_step`, `columns` and `tokens` of a `Chunk`.
        bias: address of the biases of the chunk's first gate, or 0.
        pair: number of the pair of panels within the chunk.
        products: address of rows of STEP bytes.
    """
    kind, width, activation = call.out.dtype, call.out.shape[1], call.activation.int32[0]
    item, first = item_bytes(kind), COLUMNS * pair
    for row in range(chunk.tokens):
        for at in range(0, min(COLUMNS, chunk.columns - first), LANES):
            count = chunk.columns - first - at
            here, added = products + STEP * row + 4 * at, bias + 4 * (first + at)
            gate, up = load(here), load(here + 4 * COLUMNS)
            if bias != 0:
                gate = add(gate, load_some(added, count))
                up = add(up, load_some(added + 4 * width, count))
            place = chunk.out + row * chunk.out_step + item * (first + at)
            store_as(kind, place, gated(activation, gate, up), count)


@inner
def _chunks(call: Any) -> int:
    return num_chunks(call, call.panels.shape[1] // PARTS)


@inner
def products_bytes(call: Any) -> int:
    """Bytes for the products of a chunk's rows with one panel of gate and one of up."""
    return STEP * min(call.x.shape[0], most_rows(call))


@inner
def add_adapters(call: Any, share: Share, pair: int, products: int) -> None:
    """Adds what adapters add to the products of a share's rows with a pair of its panels.

    Args:
        products: address of rows of STEP bytes, with `gated_bytes` behind them.
    """
    sums = products + products_bytes(call)
    add_expanded(call, share, share.panel + pair, products, STEP, sums)


@inner
def gated_bytes(call: Any) -> int:
    """Bytes for products, and for what is added to them."""
    return products_bytes(call) + expand_bytes(call)


@cpu_kernel(
    NAME,
    operands=f"x panels layer ends bias activation {OPERANDS}",
    results="out",
    items=_chunks,
    scratch=gated_bytes,
    neighbours=True,
)
@inner
def _chunk(call: Any, item: int, products: int) -> None:
    """Multiplies and gates pairs of panels, with the products in the thread's own memory."""
    share = share_of(call, item, call.panels.shape[1] // PARTS)
    chunk = chunk_of(call, share, PARTS)
    bias = bias_of(call, share)
    for pair in range(chunk.num_panels // PARTS):
        multiply(call, pair_of(chunk, pair, products), 1, 0)
        add_adapters(call, share, pair, products)
        gate_pair(call, chunk, bias, pair, products)
