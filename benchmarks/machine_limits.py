"""What this machine can do at best, measured: bytes read a second, operations a second."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np


def read_bandwidth() -> float:
    """Bytes a second that all cores together read, best of several rounds."""
    cores = os.cpu_count() or 1
    parts = [np.ones(2**27, np.float32) for _ in range(cores)]  # 512 MiB each: beyond any cache
    best = 0.0
    with ThreadPoolExecutor(cores) as pool:
        for _ in range(5):
            started = time.perf_counter()
            list(pool.map(np.max, parts))
            seconds = time.perf_counter() - started
            best = max(best, sum(part.nbytes for part in parts) / seconds)
    return best


def matrix_rate(size: int = 2048) -> float:
    """Operations a second of one large float32 product, best of several."""
    x = jnp.ones((size, size), jnp.float32)
    times = jax.jit(jnp.matmul)
    times(x, x).block_until_ready()
    best = float("inf")
    for _ in range(8):
        started = time.perf_counter()
        times(x, x).block_until_ready()
        best = min(best, time.perf_counter() - started)
    return 2.0 * size**3 / best
