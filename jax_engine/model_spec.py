"""A model's specification: embedding, groups of layers, final norm and head, as plain data.

Compile time must not grow with depth, so layers are scanned over. A group repeats a pattern of
layers: the scan runs over the repetitions, and the pattern is unrolled inside. Llama is one group
whose pattern is a single layer. Alternating layers, such as with and without a window, are a
pattern of several layers; different layers at the beginning or the end are another group.
"""

import dataclasses
from typing import Literal, get_args

from jax_engine.errors import ConfigError

RopeType = Literal["none", "linear", "dynamic", "llama3", "yarn"]


@dataclasses.dataclass(frozen=True)
class RopeConfig:
    """Rotary embedding: the base `theta`, and how it is stretched beyond the trained context.

    `factor` is the stretch; `original_max_position_embeddings` is the trained context, needed by
    llama3 and yarn. `frequency_factors` (D/2 divisors, from a GGUF file's rope_freqs tensor) is the
    result of the llama3 formula and replaces it. Raises ConfigError for an invalid value.
    """

    theta: float = 10000.0
    type: RopeType = "none"
    factor: float = 1.0
    original_max_position_embeddings: int | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    frequency_factors: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.type not in get_args(RopeType):
            known = ", ".join(get_args(RopeType))
            raise ConfigError(f"rope type {self.type!r} is not supported; known: {known}.")
        if self.theta <= 0 or self.factor <= 0:
            raise ConfigError(
                f"rope theta and factor must be positive, got {self.theta=}, {self.factor=}."
            )
        if self.type == "llama3" and self.frequency_factors is None:
            _require_original_context(self)
            if self.high_freq_factor <= self.low_freq_factor:
                raise ConfigError(
                    f"rope high_freq_factor must exceed low_freq_factor ({self.low_freq_factor}), "
                    f"got {self.high_freq_factor}."
                )
        if self.type == "yarn":
            _require_original_context(self)


def _require_original_context(rope: RopeConfig) -> None:
    if not rope.original_max_position_embeddings:
        raise ConfigError(f"rope type {rope.type!r} needs original_max_position_embeddings > 0.")


@dataclasses.dataclass(frozen=True)
class AttentionSpec:
    """Grouped-query attention with rotary positions.

    Attributes:
        window: a query sees this many of the last positions, its own included; None: all.
        bias: whether all four projections have a bias.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope: RopeConfig
    window: int | None = None
    bias: bool = False


@dataclasses.dataclass(frozen=True)
class MlpSpec:
    """A gated feed-forward network, F wide."""

    width: int
    bias: bool = False


@dataclasses.dataclass(frozen=True)
class LayerSpec:
    """Attention, then MLP: each takes the RMS-normed residual and is added to it."""

    attention: AttentionSpec
    mlp: MlpSpec
    norm_eps: float


@dataclasses.dataclass(frozen=True)
class LayerGroup:
    """A pattern of layers, repeated."""

    pattern: tuple[LayerSpec, ...]
    repeats: int

    @property
    def num_layers(self) -> int:
        return len(self.pattern) * self.repeats


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """A decoder. Hashable: it is static in compiled functions.

    Attributes:
        width: E, the width of the residual stream.
        tied: whether the embedding is also the head.

    Raises:
        ConfigError: Layers need KV caches of different shapes.
    """

    vocab_size: int
    width: int
    groups: tuple[LayerGroup, ...]
    norm_eps: float
    tied: bool = False

    def __post_init__(self) -> None:
        shapes = {(one.num_kv_heads, one.head_dim) for one in self.attentions}
        if len(shapes) != 1:
            raise ConfigError(
                "all layers must have KV heads of one number and one size, got "
                f"(num_kv_heads, head_dim) of {sorted(shapes)}."
            )

    @property
    def attentions(self) -> list[AttentionSpec]:
        """The attention of each layer of each pattern."""
        return [layer.attention for group in self.groups for layer in group.pattern]

    @property
    def num_layers(self) -> int:
        return sum(group.num_layers for group in self.groups)

    @property
    def num_heads(self) -> int:
        """Query heads of the layer that has most."""
        return max(one.num_heads for one in self.attentions)

    @property
    def head_dim(self) -> int:
        return self.attentions[0].head_dim

    def numbers(self, group: int, place: int) -> range:
        """Numbers, in the model, of the layers at one place of a group's pattern."""
        first = sum(one.num_layers for one in self.groups[:group])
        last, period = first + self.groups[group].num_layers, len(self.groups[group].pattern)
        return range(first + place, last, period)
