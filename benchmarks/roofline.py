"""How long a step takes on devices that share a model, by a roofline: arithmetic, no measurement.

A step is its parts one after another: each takes as long as its bytes or its operations do,
whichever is longer. Kernels add what each loses at its start and end, and exchanges their latency
and the time that their bytes take on the links.
"""

import dataclasses
from collections.abc import Sequence

from benchmarks.gpu.engine.limits import BYTES, Card, Work
from jax_engine.model_spec import AttentionSpec, ExpertsSpec, LayerSpec, MlpSpec, ModelSpec
from jax_engine.parallel.partition import divided


@dataclasses.dataclass(frozen=True)
class Row:
    """A sequence of a step: its new tokens, and all of its tokens with these."""

    new: int
    length: int


@dataclasses.dataclass(frozen=True)
class Link:
    """How devices are connected.

    Attributes:
        latency_s: Seconds of an exchange of a short message.
        bytes_per_s: What a device receives in a second.
    """

    latency_s: float
    bytes_per_s: float


@dataclasses.dataclass(frozen=True)
class Exchanges:
    """What a device says in one step.

    Attributes:
        count: How often.
        received: Bytes that come from other devices.
    """

    count: int = 0
    received: int = 0

    def seconds(self, link: Link) -> float:
        return self.count * link.latency_s + self.received / link.bytes_per_s


def parts_of_step(spec: ModelSpec, size: int, rows: Sequence[Row]) -> dict[str, Work]:
    """What one of `size` devices has to do in a step, by part.

    Weights are read once, of experts those that the step's tokens choose, if each chooses at
    random; devices that have whole experts have as many of these. Keys and values of each sequence
    are read once. The head has one row for each sequence.

    Args:
        spec: The whole model.

    Raises:
        ConfigError: So many devices cannot share it.
    """
    share = divided(spec, size)
    tokens = sum(row.new for row in rows)
    products, attention = Work(0, 0), Work(0, 0)
    for group in share.groups:
        for layer in group.pattern:
            own = _products(layer, share.width, tokens)
            products = _sum(products, own, group.repeats)
            attention = _sum(attention, _attention(layer.attention, rows), group.repeats)
    head = -(-spec.vocab_size // size) * spec.width
    return {
        "products": products,
        "attention": attention,
        "head": Work(BYTES * head, 2 * head * len(rows)),
    }


def predicted_seconds(
    parts: dict[str, Work],
    card: Card,
    *,
    kernels: int,
    kernel_s: float,
    exchanges: Sequence[tuple[Exchanges, Link]] = (),
) -> dict[str, float]:
    """Seconds of a step on one device, by what takes them; their sum is the step.

    Args:
        kernels: Kernels and copies that the device carries out in the step, beside exchanges.
        kernel_s: What each loses at its start and end.
        exchanges: What devices say to each other, each kind over its link.
    """
    found = {name: work.seconds(card) for name, work in parts.items()}
    found["kernels"] = kernels * kernel_s
    found["exchanges"] = sum(said.seconds(link) for said, link in exchanges)
    return found


def _sum(one: Work, other: Work, times: int = 1) -> Work:
    return Work(one.size + times * other.size, one.flops + times * other.flops)


def _products(layer: LayerSpec, width: int, tokens: int) -> Work:
    spec, mlp = layer.attention, layer.mlp
    of_heads = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
    matrices = width * (of_heads + spec.num_heads * spec.value_dim)
    dense = _dense(matrices, tokens)
    if isinstance(mlp, MlpSpec):
        return _sum(dense, _dense(_network(mlp, width), tokens))
    return _sum(dense, _experts(mlp, width, tokens))


def _experts(spec: ExpertsSpec, width: int, tokens: int) -> Work:
    count, chosen = spec.router.num_experts, spec.router.top_k
    touched = count * (1 - (1 - chosen / count) ** tokens)
    each = _network(spec.expert, width)
    experts = Work(
        round(BYTES * touched * each / spec.dealt_to), 2 * each * tokens * chosen // spec.dealt_to
    )
    always = _dense(count * width, tokens)
    if spec.shared is not None:
        always = _sum(always, _dense(_network(spec.shared, width), tokens))
    return _sum(experts, always)


def _network(spec: MlpSpec, width: int) -> int:
    """How many weights a feed-forward network has."""
    return (3 if spec.gated else 2) * width * spec.width


def _dense(weights: int, tokens: int) -> Work:
    return Work(BYTES * weights, 2 * weights * tokens)


def _attention(spec: AttentionSpec, rows: Sequence[Row]) -> Work:
    context = sum(row.length for row in rows)
    pairs = sum(row.new * row.length - row.new * (row.new - 1) // 2 for row in rows)
    return Work(
        BYTES * spec.num_kv_heads * (spec.head_dim + spec.value_dim) * context,
        2 * spec.num_heads * (spec.head_dim + spec.value_dim) * pairs,
    )
