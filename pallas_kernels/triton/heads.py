"""Loads and stores vectors of D elements."""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool

from pallas_kernels.triton.dialect import SMALLEST, load, next_power_of_two, store

# C vectors, cut along D: arrays [C, size of the part].
Parts = tuple[Array, ...]


def parts(dim: int) -> tuple[tuple[int, int], ...]:
    """Start and size of each part of a vector; sizes are powers of two.

    Triton's arrays need sizes that are powers of two. Cutting a vector of 80 into 64 and 16 adds no
    padding; rounding up to 128 would add 48. The last part may exceed D: always if D is no multiple
    of 16, else by at most an eighth of the part (112 is one part of 128).
    """
    found = []
    begin = 0
    while begin < dim:
        rest = dim - begin
        size = next_power_of_two(rest)
        if 8 * rest < 7 * size:
            size //= 2
        size = max(SMALLEST, size)
        found.append((begin, size))
        begin += size
    return tuple(found)


def read_heads(
    array: Array, index: tuple[Array, ...], dim: int, mask: Bool[Array, "C 1"] | None
) -> Parts:
    """Reads C vectors of an array [.., D]; zeros for masked vectors and past D.

    Args:
        array: the array.
        index: arrays [C, 1], one for each axis but the last.
        dim: D.
        mask: true for vectors to read; None reads all.
    """
    return tuple(
        load(place) if inside is None else load(place, inside, jnp.zeros((), array.dtype))
        for place, inside in _places(array, index, dim, mask)
    )


def write_heads(
    array: Array,
    index: tuple[Array, ...],
    dim: int,
    mask: Bool[Array, "C 1"] | None,
    values: Parts,
) -> None:
    """Writes C vectors, cast to the array's dtype; the inverse of `read_heads`."""
    for (place, inside), value in zip(_places(array, index, dim, mask), values, strict=True):
        store(place, value.astype(array.dtype), inside)


def _places(
    array: Array, index: tuple[Array, ...], dim: int, mask: Array | None
) -> Iterator[tuple[Any, Array | None]]:
    for begin, size in parts(dim):
        column = begin + jnp.arange(size, dtype=jnp.int32)[None, :]
        inside = mask
        # No column mask where it would be all true: it costs registers.
        if begin + size > dim:
            inside = column < dim if mask is None else mask & (column < dim)
        if inside is not None:
            inside = jnp.broadcast_to(inside, (index[-1].shape[0], size))
        yield array.at[(*index, column)], inside
