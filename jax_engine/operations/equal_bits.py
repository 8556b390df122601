"""Sums over rows and functions of single numbers, for XLA, with equal bits for any number of rows.

On a CPU XLA adds in another order where an array has fewer than some 4,096 numbers, and so gives a
row other bits when it is alone. There the additions are written out, number by number.

XLA's loops on a CPU go through whole vectors of numbers, and through what is left over one by one.
exp, tanh and their like round some numbers otherwise there. So where a row has fewer numbers than
vectors have, or is no multiple of them, its bits would depend on the number of rows.
"""

import functools
from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jax_engine.operations.device import this_device

PARTS = 8  # of a row, which are added to each other, until one number is left


def row_sums(x: Float[Array, "*rows N"]) -> Float[Array, "*rows 1"]:
    """The sum of each row. On a CPU its bits depend on the row alone."""
    if this_device().bits_by_shape:
        return _in_order(x)
    return jnp.sum(x, axis=-1, keepdims=True)


def apart(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """On a CPU, keeps what made these numbers out of the loop that uses them.

    In one loop a product and a sum may be rounded once or twice, and at a row's end otherwise.
    """
    return lax.optimization_barrier(x) if this_device().bits_by_shape else x


def _in_order(x: Float[Array, "*rows N"]) -> Float[Array, "*rows 1"]:
    """Adds as many numbers at once as a row has in a part: the first of each part, the second..."""
    x = lax.optimization_barrier(x)
    while (size := x.shape[-1]) > 1:
        width = -(-size // PARTS)
        rest = (0, -size % width)
        padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [rest])
        parts = [padded[..., at : at + width] for at in range(0, size, width)]
        x = lax.optimization_barrier(functools.reduce(jnp.add, parts))
    return x


NUMBERS = 64  # a multiple of every processor's vector of float32


def in_whole_vectors(
    function: Callable[[Array], Array], x: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """`function` of each number. On a CPU its bits depend on the number alone."""
    if not this_device().bits_by_shape or (x.shape[-1:] and x.shape[-1] % NUMBERS == 0):
        return function(x)
    flat = jnp.pad(x.reshape(-1), (0, -x.size % NUMBERS))
    # Without the barriers, all of this would be one loop over the numbers that are wanted.
    whole = lax.optimization_barrier(flat.reshape(-1, NUMBERS))
    result: Array = lax.optimization_barrier(function(whole))
    return result.reshape(-1)[: x.size].reshape(x.shape)
