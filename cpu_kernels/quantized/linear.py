"""Products with weights in codes: x @ weight.T.

The kernel receives a whole stack of layers and the index of one, so nothing is copied. Each
product's sums run over a row in the same order, whatever the number of rows and of threads.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8

from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.compiling.jit import inner
from cpu_kernels.linear.chunks import Share, num_chunks, share_of
from cpu_kernels.linear.linear import words_of
from cpu_kernels.quantized.kinds import (
    PanelKind,
    forms_of,
    padded,
    pairs_of,
    sums_group,
    tables_of,
)
from cpu_kernels.quantized.panels import num_panels
from cpu_kernels.quantized.tiles import PART_BYTES, PLACE_BYTES, Chunk, multiply_of
from cpu_kernels.simd.micro_kernel import COLUMNS
from cpu_kernels.simd.structs import BFLOAT16
from cpu_kernels.simd.widen import item_bytes
from cpu_kernels.simd.words import MULTIPLIES_PAIRS, Floats, Pairs

NAME = "cpu_kernels.quantized_linear"
_multiply_floats = multiply_of(Floats)
_multiply_pairs = multiply_of(Pairs) if MULTIPLIES_PAIRS else _multiply_floats


def quantized_linear(
    x: Float[Array, "T in"],
    panels: UInt8[Array, "*L bytes"],
    places: Int[Array, "*L panels 2"],
    kinds: Sequence[PanelKind],
    *,
    width: int,
    dtype: jnp.dtype,
    layer: Int[Array, ""] | None = None,
    num_rows: Int[Array, ""] | None = None,
) -> Float[Array, "T width"]:
    """x @ weight.T in float32, for a weight or one layer of a stack of weights.

    Args:
        x: rounded to `dtype` if it has another.
        panels: the weight [width, in] in panels, written by `pack`; or a stack of such weights.
        places: of the panels of the weight, or of each weight of the stack.
        kinds: of the panels: see `panel_kinds`.
        width: number of rows of the weight.
        dtype: float32 or bfloat16: that of x in the products.
        layer: index into the stack, int32; clipped to its ends.
        num_rows: number of rows of x to multiply, int32; the result has zeros for the others,
            so padding costs nothing.

    Raises:
        ValueError: the panels or their places do not have the shape of a weight of `width` rows.
    """
    check_places(panels, places, width)
    index = jnp.zeros((), jnp.int32) if layer is None else layer
    count = jnp.int32(x.shape[0]) if num_rows is None else num_rows
    stack = panels.reshape(-1, panels.shape[-1]), places.reshape(-1, *places.shape[-2:])
    operands = operands_of(x, *stack, kinds, dtype)
    result = jax.ShapeDtypeStruct((x.shape[0], width), jnp.float32)
    out: Array = jax.ffi.ffi_call(NAME, result)(*operands, index, count.reshape(1))
    return out


def check_places(panels: Array, places: Array, width: int, parts: int = 1) -> None:
    """Refuses panels and places that are not those of weights with `width` rows."""
    expected = (*panels.shape[:-1], num_panels(width, parts), 2)
    if places.shape != expected:
        raise ValueError(
            f"places of the panels {panels.shape} of weights with {width} rows must be "
            f"{expected}, got {places.shape}"
        )


def operands_of(
    x: Float[Array, "T in"],
    panels: UInt8[Array, "weights bytes"],
    places: Int[Array, "weights panels 2"],
    kinds: Sequence[PanelKind],
    dtype: jnp.dtype,
) -> tuple[Array, ...]:
    """The kernels' operands x, panels, places, forms, tables and sums."""
    x = jnp.pad(x, ((0, 0), (0, padded(x.shape[1]) - x.shape[1])))
    words, group = words_of(x, dtype), sums_group(kinds)
    forms, tables = forms_of(kinds), tables_of(kinds, pairs=pairs_of(dtype))
    sums = _sums_of(words, group) if group else jnp.zeros((x.shape[0], 0))
    return words, panels, places, jnp.asarray(forms), jnp.asarray(tables), sums


def _sums_of(x: Float[Array, "T in"], group: int) -> Float[Array, "T groups"]:
    """The sums of a row's columns in groups, which are added in the same order for any row."""
    x = jnp.pad(x.astype(jnp.float32), ((0, 0), (0, -x.shape[1] % group)))
    parts = x.reshape(x.shape[0], -1, group)
    while group % 2 == 0:
        group //= 2
        parts = parts[..., :group] + parts[..., group:]
    total = parts[..., 0]
    for i in range(1, group):
        total += parts[..., i]
    return total


@inner
def chunk_of(call: Any, share: Share, parts: int, scratch: int) -> Chunk:
    """The chunk of a work item; `parts` is 2 if panels of gate and up alternate."""
    places, out, groups = call.places, call.out, call.ends.shape[0]
    item, first = item_bytes(out.dtype), parts * share.panel
    x_step, sums_step = item_bytes(call.x.dtype) * call.x.shape[1], 4 * call.sums.shape[1]
    layer = min(max(call.layer.int32[0], 0), places.shape[0] // groups - 1)
    matrix = layer * groups + share.group
    return Chunk(
        call.panels.address + matrix * call.panels.shape[1],
        places.address + PLACE_BYTES * (matrix * places.shape[1] + first),
        call.forms.address,
        call.tables.address,
        parts * (share.last - share.panel),
        share.followed,
        call.x.address + share.row * x_step,
        call.sums.address + share.row * sums_step,
        out.address + share.row * item * out.shape[1] + item * COLUMNS * share.panel,
        call.x.shape[1],
        out.shape[1] - COLUMNS * share.panel,
        share.end - share.row,
        x_step,
        sums_step,
        item * out.shape[1],
        scratch,
    )


@inner
def multiply(call: Any, chunk: Chunk) -> None:
    """All products of a chunk, in the dtype of x."""
    if call.x.dtype == BFLOAT16:
        _multiply_pairs(chunk)
    else:
        _multiply_floats(chunk)


@inner
def _chunks(call: Any) -> int:
    return num_chunks(call, call.places.shape[1])


@inner
def _scratch(call: Any) -> int:
    return PART_BYTES


@cpu_kernel(
    NAME,
    operands="x panels places forms tables sums layer ends",
    results="out",
    items=_chunks,
    scratch=_scratch,
    neighbours=True,
)
@inner
def _chunk(call: Any, item: int, scratch: int) -> None:
    share = share_of(call, item, call.places.shape[1])
    multiply(call, chunk_of(call, share, 1, scratch))
