"""Consecutive ranges of unequal length, kept as their boundaries."""

import jax.numpy as jnp
from jaxtyping import Array, Int


def owner(boundaries: Int[Array, " n"], index: Int[Array, "..."]) -> Int[Array, "..."]:
    """The number of the range, of n - 1 consecutive ones, that holds each index; n - 1 beyond."""
    # Comparing with all boundaries is one fused kernel; a binary search is a loop of several.
    return (boundaries[1:] <= index[..., None]).sum(-1, dtype=jnp.int32)


def cumulative(counts: Array) -> Int[Array, " n"]:
    """Boundaries of consecutive ranges of the given sizes, from 0."""
    return jnp.pad(jnp.cumsum(counts, dtype=jnp.int32), (1, 0))
