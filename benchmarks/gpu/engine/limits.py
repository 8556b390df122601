"""What the card allows a model: bytes over its read bandwidth, operations over its matrix rate."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from benchmarks.compare.bounds import head_shape, num_weights
from jax_engine.models.model_config import ModelConfig

BYTES = 2  # of a bfloat16


@dataclass(frozen=True)
class Card:
    """Measured rates.

    Attributes:
        bytes_per_s: The better of reading and of copying, so that the bound is not flattering.
        flops_per_s: Floating-point operations a second of a large product in bfloat16.
    """

    bytes_per_s: float
    flops_per_s: float


def card_of(rates: dict[str, float]) -> Card:
    """From the rates that `benchmarks.gpu.card` measures."""
    fastest = max(rates["read_bytes_per_s"], rates["copy_bytes_per_s"])
    return Card(fastest, rates["matrix_flops_per_s"])


@dataclass(frozen=True)
class Work:
    """What one step has to do: bytes to read, operations to carry out."""

    size: int
    flops: int

    def seconds(self, card: Card) -> float:
        return max(self.size / card.bytes_per_s, self.flops / card.flops_per_s)


def weight_bytes(config: ModelConfig) -> int:
    """Weights that each step reads: not the norms, not an embedding apart from the head."""
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
