"""What the card allows a model: bytes over its read bandwidth, operations over its matrix rate."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.compare.bounds import head_shape, num_weights
from benchmarks.gpu.card import copy_bytes_per_s, matrix_flops_per_s
from benchmarks.gpu.timing import seconds_each
from jax_engine.models.config import ModelConfig

BYTES = 2  # of a bfloat16


def read_bytes_per_s(smoke: bool) -> float:
    """Bytes a second at which the card reads an array much larger than its L2 cache."""
    x = jnp.zeros(2**16 if smoke else 2**29, jnp.int32)

    @partial(jax.jit, static_argnums=1)
    def loop(x: Any, count: int) -> Any:
        # Each sum needs the one before, so that none is taken out of the loop.
        return lax.fori_loop(0, count, lambda i, total: total + jnp.sum(x ^ total), jnp.int32(1))

    each = seconds_each(lambda n: partial(loop, x, n), few=4, many=24, rounds=5)
    return x.nbytes / each


@dataclass(frozen=True)
class Card:
    """Measured rates.

    Attributes:
        bytes_per_s: The better of reading and of copying, so that the bound is not flattering.
        flops_per_s: Of a large product in bfloat16.
    """

    bytes_per_s: float
    flops_per_s: float


def measure_card(smoke: bool) -> tuple[Card, dict[str, float]]:
    """The rates, and the three measurements behind them."""
    found = {
        "read_bytes_per_s": read_bytes_per_s(smoke),
        "copy_bytes_per_s": copy_bytes_per_s(smoke),
        "matrix_flops_per_s": matrix_flops_per_s(smoke),
    }
    fastest = max(found["read_bytes_per_s"], found["copy_bytes_per_s"])
    return Card(fastest, found["matrix_flops_per_s"]), found


@dataclass(frozen=True)
class Work:
    """What one step has to do: bytes to read, operations to carry out."""

    size: int
    flops: int

    def seconds(self, card: Card) -> float:
        return max(self.size / card.bytes_per_s, self.flops / card.flops_per_s)


def weight_bytes(config: ModelConfig) -> int:
    """Of the weights that each step reads: not the norms, not an embedding apart from the head."""
    return BYTES * num_weights(config)


def step_work(config: ModelConfig, sequences: Iterable[tuple[int, int]]) -> Work:
    """Weights once, keys and values of every sequence once; the head for one token of each.

    Args:
        sequences: (new tokens, all tokens) of each.
    """
    head = int(np.prod(head_shape(config)))
    spec = config.spec
    heads, kv_heads = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    new = context = count = pairs = 0
    for queries, length in sequences:
        new, context, count = new + queries, context + length, count + 1
        pairs += queries * length - queries * (queries - 1) // 2
    layers = num_weights(config) - head
    attention = 4 * spec.num_layers * heads * pairs
    return Work(
        weight_bytes(config) + BYTES * 2 * spec.num_layers * kv_heads * context,
        2 * layers * new + 2 * head * count + attention,
    )
