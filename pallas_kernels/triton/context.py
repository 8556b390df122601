"""Reading a stretch of the paged context inside a kernel."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from pallas_kernels.triton.dialect import SMALLEST, load, store
from pallas_kernels.triton.operands import Geometry, Operands

# Parts of a head, side by side.
Parts = tuple[Array, ...]


def parts(dim: int) -> tuple[tuple[int, int], ...]:
    """Where the parts of a head begin, and their sizes: powers of two that add up to D.

    Triton's arrays have powers of two for sizes. Cutting a head of 80 into 64 and 16 computes
    nothing on padding, where rounding up to 128 would for 48. The last part hangs over D where D
    is no multiple of 16.
    """
    found = []
    begin = 0
    while begin < dim:
        size = max(SMALLEST, 1 << ((dim - begin).bit_length() - 1))
        found.append((begin, size))
        begin += size
    return tuple(found)


class Stretch(NamedTuple):
    """Where C consecutive tokens of a context lie.

    Attributes:
        row: row of the keys' block in `Operands.kv_rows`.
        values: from there to the row of the values.
        offset: the token's slot in its block.
        seen: which tokens to read; None reads all.
    """

    row: Int[Array, " C"]
    values: int
    offset: Int[Array, " C"]
    seen: Bool[Array, " C"] | None


def locate(
    operands: Operands,
    shape: Geometry,
    seq: Int[Array, ""],
    kv_head: Int[Array, ""],
    position: Int[Array, " C"],
    seen: Bool[Array, " C"] | None,
) -> Stretch:
    """Find tokens at the given positions; entries of the table are followed only where seen."""
    column = lax.div(position, shape.block_size)
    entry = operands.block_tables.at[seq, column]
    block = load(entry) if seen is None else load(entry, mask=seen, other=0)
    first = operands.layer[0] * (2 * shape.blocks)
    row = (first + block) * shape.kv_heads + kv_head
    values = shape.blocks * shape.kv_heads
    return Stretch(row, values, lax.rem(position, shape.block_size), seen)


def read_keys(operands: Operands, shape: Geometry, where: Stretch) -> Parts:
    """Keys [C, part], zeros where not seen."""
    return _read(operands.kv_rows, shape, where, where.row)


def read_values(operands: Operands, shape: Geometry, where: Stretch) -> Parts:
    """Values [C, part], zeros where not seen: a probability of zero would not hide a NaN."""
    return _read(operands.kv_rows, shape, where, where.row + where.values)


def _read(kv_rows: Array, shape: Geometry, where: Stretch, row: Int[Array, " C"]) -> Parts:
    index = (row[:, None], where.offset[:, None])
    mask = None if where.seen is None else where.seen[:, None]
    found = read_heads(kv_rows, index, shape.dim, mask)
    return tuple(x.astype(shape.compute_dtype) for x in found)


def read_heads(
    ref: Array, index: tuple[Array, ...], dim: int, mask: Bool[Array, "C 1"] | None
) -> Parts:
    """C vectors of an array [.., D] in parts [C, part]; zeros where masked and past D.

    Args:
        ref: the array.
        index: arrays [C, 1], one for each axis but the last.
        dim: D.
        mask: vectors to read; None reads all.
    """
    return tuple(
        load(place) if inside is None else load(place, mask=inside, other=zero)
        for place, inside, zero in _places(ref, index, dim, mask)
    )


def write_heads(
    ref: Array, index: tuple[Array, ...], dim: int, mask: Bool[Array, "C 1"] | None, values: Parts
) -> None:
    """The inverse of `read_heads`, in the array's dtype."""
    for (place, inside, _), value in zip(_places(ref, index, dim, mask), values, strict=True):
        store(place, value.astype(ref.dtype), mask=inside)


def _places(ref: Array, index: tuple[Array, ...], dim: int, mask: Array | None) -> Iterator[Any]:
    for begin, size in parts(dim):
        column = begin + jnp.arange(size, dtype=jnp.int32)[None, :]
        inside = mask
        # The mask of the columns is left out where it is all true: it costs registers.
        if begin + size > dim:
            inside = column < dim if mask is None else mask & (column < dim)
        if inside is not None:
            inside = jnp.broadcast_to(inside, (index[-1].shape[0], size))
        yield ref.at[(*index, column)], inside, jnp.zeros((), ref.dtype)
