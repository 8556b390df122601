"""A model's specification: embedding, groups of layers, final norm and head, as plain data.

Compile time must not grow with depth, so layers are scanned over. A group repeats a pattern of
layers: the scan runs over the repetitions, and the pattern is unrolled inside. Llama is one group
whose pattern is a single layer. Layers that differ only by a number, such as their window, are one
pattern, too: the number is given for each repetition. Layers of another shape at the beginning or
the end are another group.
"""

import dataclasses
from typing import Literal

from jax_engine.errors import ConfigError
from jax_engine.rope_config import RopeConfig

Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu2", "clipped_swiglu"]


@dataclasses.dataclass(frozen=True)
class NormSpec:
    """A norm over the residual stream, or over heads.

    Attributes:
        kind: "rms" divides by the root mean square; "layer" subtracts the mean first.
        bias: whether a vector is added at the end, by a layer norm.

    Raises:
        ConfigError: the root-mean-square norm has a bias.
    """

    eps: float
    kind: Literal["rms", "layer"] = "rms"
    bias: bool = False

    def __post_init__(self) -> None:
        if self.bias and self.kind == "rms":
            raise ConfigError("a model's root-mean-square norm must have no bias.")


@dataclasses.dataclass(frozen=True)
class HeadNormSpec(NormSpec):
    """A norm of queries and keys, before they are rotated.

    Attributes:
        whole: whether the statistics are those of all heads together instead of each head's own.
    """

    whole: bool = False


@dataclasses.dataclass(frozen=True)
class QueryGrowth:
    """Queries grow with their position: they are multiplied by 1 + beta ln(1 + position // length).

    Ministral 3 keeps attention sharp in long contexts so.
    """

    beta: float
    length: int


@dataclasses.dataclass(frozen=True)
class AttentionSpec:
    """Grouped-query attention.

    Attributes:
        rope: rotary positions; None: no rotation.
        rotary_dim: how many of a head's numbers are rotated, the first ones; None: all.
        window: a query sees this many of the last positions, its own included; None: all.
        scale: factor of the scores; None: head_dim ** -0.5.
        soft_cap: bound of the scores' magnitude; None: no bound.
        alibi_slopes: for each head, what a score loses with each position between query and key.
        sinks: whether each head has a logit that takes part in the softmax and has no value.
        qkv_bias: whether the projections of queries, keys and values have a bias.
        output_bias: whether the output projection has one.
        clip: bound of the magnitude of projected queries, keys and values; None: no bound.
        head_norm: norm of queries and keys; None: none.

    `rope` and `window` may be a tuple: one for each repetition of the pattern.

    Raises:
        ConfigError: two numbers do not fit together.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope: RopeConfig | tuple[RopeConfig | None, ...] | None = None
    rotary_dim: int | None = None
    window: int | tuple[int | None, ...] | None = None
    scale: float | None = None
    query_growth: QueryGrowth | None = None
    soft_cap: float | None = None
    alibi_slopes: tuple[float, ...] | None = None
    sinks: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    clip: float | None = None
    head_norm: HeadNormSpec | None = None

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"model num_heads ({self.num_heads}) must be a multiple of num_kv_heads "
                f"({self.num_kv_heads})."
            )
        for rope in self.ropes:
            _check_rope(rope, self.rotated, self.head_dim)

    @property
    def ropes(self) -> list[RopeConfig]:
        """The different rotary embeddings, each once."""
        return [rope for rope in choices(self.rope) if rope is not None]

    @property
    def rotated(self) -> int:
        """How many of a head's numbers are rotated."""
        return self.head_dim if self.rotary_dim is None else self.rotary_dim


def _check_rope(rope: RopeConfig, rotated: int, head_dim: int) -> None:
    """Checks a rotary embedding against the size of the heads."""
    if rotated % 2 or not 0 < rotated <= head_dim:
        what = "head_dim" if rotated == head_dim else "the rotated part of head_dim"
        raise ConfigError(f"model {what} must be even for RoPE, got {rotated} of {head_dim}.")
    if rope.type == "dynamic" and rotated < 4:
        raise ConfigError(
            f"model head_dim must be at least 4 for rope type 'dynamic', got {rotated}."
        )
    for factors in (rope.frequency_factors, rope.short_factors, rope.long_factors):
        if factors is not None and len(factors) != rotated // 2:
            raise ConfigError(
                f"rope frequency_factors must be {rotated // 2} numbers, half of head_dim "
                f"({rotated}), got {len(factors)}."
            )


@dataclasses.dataclass(frozen=True)
class MlpSpec:
    """A feed-forward network, F wide.

    Attributes:
        gated: whether the activation of a first product multiplies a second one.
        bias: whether its matrices have a bias.
    """

    width: int
    activation: Activation = "silu"
    gated: bool = True
    bias: bool = False


@dataclasses.dataclass(frozen=True)
class RouterSpec:
    """How each token chooses `top_k` of X experts, and how much each of them counts.

    Attributes:
        scores: "softmax" and "sigmoid" score all experts before the choice; "chosen_softmax" makes
            the logits of those that are chosen sum to one.
        renormalise: whether the chosen scores are divided by their sum.
        scaling: factor of the weights.
        bias: whether the logits have a bias.
        selection_bias: whether a bias is added to the scores for the choice only.
        groups: the experts lie in so many groups, and `top_groups` of them are eligible: those
            whose two best experts score highest together.
    """

    num_experts: int
    top_k: int
    scores: Literal["softmax", "chosen_softmax", "sigmoid"] = "softmax"
    renormalise: bool = False
    scaling: float = 1.0
    bias: bool = False
    selection_bias: bool = False
    groups: int = 1
    top_groups: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.top_k <= self.num_experts:
            raise ConfigError(
                f"model num_experts_per_tok must be between 1 and the {self.num_experts} experts, "
                f"got {self.top_k}."
            )
        if self.num_experts % self.groups or not 1 <= self.top_groups <= self.groups:
            raise ConfigError(
                f"model n_group ({self.groups}) must divide the {self.num_experts} experts, and "
                f"topk_group ({self.top_groups}) must not exceed it."
            )


@dataclasses.dataclass(frozen=True)
class ExpertsSpec:
    """A mixture of experts: feed-forward networks of which each token uses a few.

    Attributes:
        expert: the network of each expert.
        shared: a network that every token uses, too; None: none.
        shared_gate: whether the shared network's output is multiplied by a sigmoid of the input.
    """

    router: RouterSpec
    expert: MlpSpec
    shared: MlpSpec | None = None
    shared_gate: bool = False


@dataclasses.dataclass(frozen=True)
class LayerSpec:
    """Attention, then an MLP; each part's output is added to the residual stream.

    A part reads the residual stream through its norm, `input_norm` or `mlp_norm`, or as it is. Its
    output passes through `attention_output_norm` or `mlp_output_norm` before it is added, or not.
    So pre-norm models have the first two, OLMo 2 has the last two, and Gemma 2 has all four.

    Attributes:
        parallel: whether the MLP reads what attention reads, instead of the stream after it. With
            `mlp_norm` it has a norm of its own; without, the two parts share `input_norm`.
        residual_factor: factor of each part's output.
    """

    attention: AttentionSpec
    mlp: MlpSpec | ExpertsSpec
    input_norm: NormSpec | None = None
    attention_output_norm: NormSpec | None = None
    mlp_norm: NormSpec | None = None
    mlp_output_norm: NormSpec | None = None
    parallel: bool = False
    residual_factor: float = 1.0


@dataclasses.dataclass(frozen=True)
class LayerGroup:
    """A pattern of layers, repeated.

    Raises:
        ConfigError: a setting that is given for each repetition has another length.
    """

    pattern: tuple[LayerSpec, ...]
    repeats: int

    def __post_init__(self) -> None:
        for attention in (layer.attention for layer in self.pattern):
            for name in ("rope", "window"):
                given = getattr(attention, name)
                if isinstance(given, tuple) and len(given) != self.repeats:
                    raise ConfigError(
                        f"model {name} must be given for {self.repeats} layers, got {len(given)}."
                    )

    @property
    def num_layers(self) -> int:
        return len(self.pattern) * self.repeats


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """A decoder. Hashable: it is static in compiled functions.

    Attributes:
        width: E, the width of the residual stream.
        norm: the norm before the head; None: none.
        max_context_len: longest context that the positions were made for, in tokens.
        tied: whether the embedding is also the head.
        head_bias: whether the head has a bias.
        learned_positions: P, the number of rows of a table that is added to the embedding; None:
            there is no such table.
        embedding_factor: factor of the embedding.
        embedding_norm: norm of the embedding; None: none.
        logits_factor: factor of the logits.
        logits_cap: bound of the logits' magnitude; None: no bound.

    Raises:
        ConfigError: Layers need KV caches of different shapes.
    """

    vocab_size: int
    width: int
    groups: tuple[LayerGroup, ...]
    norm: NormSpec | None
    max_context_len: int
    tied: bool = False
    head_bias: bool = False
    learned_positions: int | None = None
    embedding_factor: float = 1.0
    embedding_norm: NormSpec | None = None
    logits_factor: float = 1.0
    logits_cap: float | None = None

    def __post_init__(self) -> None:
        shapes = {(one.num_kv_heads, one.head_dim) for one in self.attentions}
        if len(shapes) != 1:
            raise ConfigError(
                "all layers must have KV heads of one number and one size, got "
                f"(num_kv_heads, head_dim) of {sorted(shapes)}."
            )

    @property
    def layers(self) -> list[LayerSpec]:
        """The layers of each pattern."""
        return [layer for group in self.groups for layer in group.pattern]

    @property
    def experts(self) -> list[ExpertsSpec]:
        """The experts of each layer of each pattern that has some."""
        return [layer.mlp for layer in self.layers if isinstance(layer.mlp, ExpertsSpec)]

    @property
    def attentions(self) -> list[AttentionSpec]:
        """The attention of each layer of each pattern."""
        return [layer.attention for layer in self.layers]

    @property
    def num_layers(self) -> int:
        return sum(group.num_layers for group in self.groups)

    @property
    def num_heads(self) -> int:
        """Query heads of the layer that has most."""
        return max(one.num_heads for one in self.attentions)

    @property
    def num_kv_heads(self) -> int:
        return self.attentions[0].num_kv_heads

    @property
    def head_dim(self) -> int:
        return self.attentions[0].head_dim

    def numbers(self, group: int, place: int) -> range:
        """Numbers, in the model, of the layers at one place of a group's pattern."""
        first = sum(one.num_layers for one in self.groups[:group])
        last, period = first + self.groups[group].num_layers, len(self.groups[group].pattern)
        return range(first + place, last, period)

    def for_length(self, max_model_len: int) -> "ModelSpec":
        """The same model for sequences of at most so many tokens; see `RopeConfig.for_length`."""

        def chosen(rope: RopeConfig | None) -> RopeConfig | None:
            return None if rope is None else rope.for_length(max_model_len)

        def of_layer(layer: LayerSpec) -> LayerSpec:
            given = layer.attention.rope
            rope = tuple(map(chosen, given)) if isinstance(given, tuple) else chosen(given)
            attention = dataclasses.replace(layer.attention, rope=rope)
            return dataclasses.replace(layer, attention=attention)

        groups = (
            dataclasses.replace(group, pattern=tuple(map(of_layer, group.pattern)))
            for group in self.groups
        )
        return dataclasses.replace(self, groups=tuple(groups))


def choices[T](setting: T | tuple[T, ...]) -> list[T]:
    """The different values of a setting that layers share, or that each repetition has."""
    return list(dict.fromkeys(setting)) if isinstance(setting, tuple) else [setting]
