"""What this card can do at best: the rate of a copy and of a matrix product, measured."""

import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.gpu.timing import seconds_each


def device_name() -> str:
    """Of the card, as a file may be called."""
    return re.sub(r"\W+", "-", jax.devices()[0].device_kind.lower())


def copy_bytes_per_s(smoke: bool) -> float:
    """Bytes read plus bytes written a second by x + 1 on a large array."""
    size = 2**16 if smoke else 2**28
    x = jnp.zeros(size, jnp.float32)

    @partial(jax.jit, static_argnums=1)
    def loop(x: Any, count: int) -> Any:
        return lax.fori_loop(0, count, lambda i, y: y + 1, x)

    each = seconds_each(lambda n: partial(loop, x, n), few=4, many=24, rounds=5)
    return 2 * x.nbytes / each


def matrix_flops_per_s(smoke: bool) -> float:
    """Operations a second of a large product of bfloat16 matrices, accumulated in float32."""
    size = 64 if smoke else 8192
    key = jax.random.key(0)
    # Eigenvalues below one, so that the chain of products stays finite.
    weight = (jax.random.normal(key, (size, size)) / (2 * size**0.5)).astype(jnp.bfloat16)
    x = jax.random.normal(key, (size, size), jnp.bfloat16)

    @partial(jax.jit, static_argnums=2)
    def loop(x: Any, weight: Any, count: int) -> Any:
        return lax.fori_loop(0, count, lambda i, y: y @ weight, x)

    each = seconds_each(lambda n: partial(loop, x, weight, n), few=4, many=24, rounds=5)
    return 2 * size**3 / each
