"""Prompts that are given as embeddings which are no token's, some with a common beginning."""

import functools

import numpy as np
from jaxtyping import Float

WIDTH = 20  # of the tiny Llamas
COMMON = 9  # vectors that all of them begin with


@functools.cache
def _vector(number: int, position: int) -> Float[np.ndarray, " E"]:
    seed = [number if position >= COMMON else 0, position]
    values = np.random.default_rng(seed).standard_normal(WIDTH) * 0.3
    return values.astype(np.float32)


def some_embeds(number: int, count: int) -> Float[np.ndarray, "n E"]:
    """Others for other numbers, from position COMMON on."""
    return np.stack([_vector(number, position) for position in range(count)])
