"""Functions of single numbers, for XLA.

XLA's loops on a CPU go through whole vectors of numbers, and through what is left over one by one.
exp, tanh and their like round some numbers otherwise there. So where a row has fewer numbers than
vectors have, or is no multiple of them, its bits would depend on the number of rows.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jax_engine.operations.device import this_device

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
