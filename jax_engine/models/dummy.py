"""Random weights: the same for the same seed, so that tests and benchmarks need no download."""

import functools
import zlib
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from jax_engine.models.weights import Leaf

SCALE = 0.02


def random_leaves(leaves: Mapping[str, Leaf], seed: int) -> dict[str, jax.Array]:
    """Every leaf drawn on the device from (seed, its name): normal with deviation 0.02.

    Norm scales are one plus that. Values do not depend on the order of the leaves, and are the
    same numbers, rounded, in every dtype.
    """
    key = jax.random.key(seed)
    return {
        name: _draw(
            jax.random.fold_in(key, zlib.crc32(name.encode())),
            shape=leaf.shape,
            dtype=leaf.dtype,
            mean=1.0 if "norm." in name else 0.0,
        )
        for name, leaf in leaves.items()
    }


@functools.partial(jax.jit, static_argnames=("shape", "dtype", "mean"))
def _draw(key: jax.Array, *, shape: tuple[int, ...], dtype: jnp.dtype, mean: float) -> jax.Array:
    """Drawn slice by slice along the first axis of a stack, so that float32 is never whole."""

    def one(slice_key: jax.Array, slice_shape: tuple[int, ...]) -> jax.Array:
        return (mean + SCALE * jax.random.normal(slice_key, slice_shape, jnp.float32)).astype(dtype)

    if len(shape) < 3:
        return one(key, shape)
    return jax.lax.map(lambda k: one(k, shape[1:]), jax.random.split(key, shape[0]))
