"""The most probable token of each row, in two levels.

XLA's CPU backend computes argmax one number at a time, but it vectorises maxima of groups.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

GROUP = 128


def most_probable(logits: Float[Array, "R V"]) -> Int[Array, "R"]:
    """The index of each row's largest logit, the first one of ties, as `jnp.argmax` returns it."""
    rows, vocab = logits.shape
    groups = -(-vocab // GROUP)
    fill = ((0, 0), (0, groups * GROUP - vocab))
    tiles = jnp.pad(logits, fill, constant_values=-jnp.inf).reshape(rows, groups, GROUP)
    group = jnp.argmax(jnp.max(tiles, axis=2), axis=1)
    tile = jnp.take_along_axis(tiles, group[:, None, None], axis=1)[:, 0]
    return (group * GROUP + jnp.argmax(tile, axis=1)).astype(jnp.int32)
