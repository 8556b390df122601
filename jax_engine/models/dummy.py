"""Random weights: the same for the same seed, so that tests and benchmarks need no download."""

import functools
import zlib
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from jax_engine.host_memory import allocating
from jax_engine.models.leaves import Leaf
from jax_engine.models.load_leaves import packed
from jax_engine.weights.format import VALUES

DEVIATION = 0.02
_BOUND = DEVIATION * 3**0.5  # uniform numbers are drawn several times faster than normal ones


def random_leaves(leaves: Mapping[str, Leaf], seed: int) -> dict[str, dict[str, jax.Array]]:
    """Draws every leaf from (seed, its name, its layer): uniform, with standard deviation 0.02.

    Scales of norms are one plus that. The numbers do not depend on the order of the leaves, and
    are the same, up to rounding, in every dtype. Raises OutOfMemoryError.
    """
    made = {}
    for name, leaf in leaves.items():
        with allocating(f"the weights {name}", leaf.num_bytes):
            values = random_values(leaf, seed)
            made[name] = {VALUES: values} if leaf.unchanged else packed(leaf, np.asarray(values))
    return made


def random_values(leaf: Leaf, seed: int) -> jax.Array:
    """The numbers of one leaf."""
    key = jax.random.key(seed)
    key = jax.random.fold_in(key, zlib.crc32(leaf.declared.encode()))
    mean = 1.0 if leaf.declared.endswith("norm.weight") else 0.0
    shape, dtype = leaf.matrix.shape, leaf.matrix.dtype
    if leaf.layers is None:
        values: jax.Array = _draw(key, shape, dtype, mean)
    else:
        values = _draw_stack(key, jnp.asarray(leaf.layers), shape[1:], dtype, mean)
    return values.block_until_ready()


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _draw(key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype, mean: float) -> jax.Array:
    values: jax.Array = mean + _BOUND * jax.random.uniform(key, shape, jnp.float32, -1, 1)
    return values.astype(dtype)


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _draw_stack(
    key: jax.Array, layers: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype, mean: float
) -> jax.Array:
    """Draws layer by layer, so that the float32 numbers never exist all at once."""
    keys = jax.vmap(lambda layer: jax.random.fold_in(key, layer))(layers)
    values: jax.Array = jax.lax.map(lambda one: _draw(one, shape, dtype, mean), keys)
    return values
