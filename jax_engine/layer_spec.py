"""A layer's specification, as plain data: its norms, its attention, its feed-forward network.

Each default is Llama's. A setting with another value is a knob that some family turns.
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
        eps: added to the mean square before its root is taken.
        kind: "rms" divides by the root mean square; "layer" subtracts the mean first.
        bias: whether a layer norm adds a vector at the end.

    Raises:
        ConfigError: a root-mean-square norm has a bias.
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
        whole: whether a token's heads are one vector to the norm, instead of a vector each.
    """

    whole: bool = False


@dataclasses.dataclass(frozen=True)
class QueryGrowth:
    """Queries grow with their position: they are multiplied by 1 + beta ln(1 + position // length).

    Ministral 3 does this to keep attention sharp in long contexts.
    """

    beta: float
    length: int


@dataclasses.dataclass(frozen=True)
class LatentSpec:
    """Keys and values of all heads are made of one short vector a token, its latent (DeepSeek V2).

    A head's key is `nope_dim` numbers of the latent's, and a rotated part that all heads share. The
    cache keeps the latent and the rotated part of each token.

    Attributes:
        kv_rank: size of the latent.
        nope_dim: size of the part of a head's query and key that is not rotated.
        value_dim: size of a head's value.
        norm: norm of the latents.
        q_rank: size of a latent that the queries are made of; None: they have none.
    """

    kv_rank: int
    nope_dim: int
    value_dim: int
    norm: NormSpec
    q_rank: int | None = None


@dataclasses.dataclass(frozen=True)
class AttentionSpec:
    """Grouped-query attention, or latent attention.

    To the cache, latent attention is one KV head: `num_kv_heads` is 1, `head_dim` is the size of
    the latent and the rotated part, and `rotary_dim` that of the rotated part.

    Attributes:
        num_heads: H, the number of query heads.
        num_kv_heads: K, the number of heads of keys and values.
        head_dim: D, the size of a head.
        rope: rotary positions; None: no rotation.
        rotary_dim: how many numbers of a head are rotated, from the first on; None: all.
        window: a query sees this many of the last positions, its own included; None: all.
        scale: factor of the scores; None: query_dim ** -0.5.
        query_growth: how queries grow with their position; None: they do not.
        soft_cap: scores s become soft_cap * tanh(s / soft_cap); None: they stay.
        alibi_slopes: for each head, what a score loses for each position between query and key.
        sinks: whether each head has a learned logit in its softmax, which has no value.
        qkv_bias: whether the projections of queries, keys and values have a bias.
        output_bias: whether the output projection has a bias.
        clip: bound of the magnitude of projected queries, keys and values, before `head_norm`;
            None: no bound.
        head_norm: norm of queries and keys; None: none.
        latent: the latents that keys and values are made of; None: there are none. With latents,
            `qkv_bias` is about the products that make them.
        shared_by: over how many devices the heads are cut; the numbers of heads are those of one.
        kv_copies: how many of these devices have the same KV head: they are more than KV heads.
        leaves: in how many parts a device adds up a row of the output projection: see `Matrix`.
            `alibi_slopes` are those of all devices, in order.
        whole_rows: whether a device has whole rows of the output projection, some of them, instead
            of a part of each: see `Linear`.

    `rope` and `window` may be a tuple: one for each repetition of the pattern.

    Raises:
        ConfigError: num_kv_heads does not divide num_heads, or a `rope` does not fit the heads.
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
    latent: LatentSpec | None = None
    shared_by: int = 1
    kv_copies: int = 1
    leaves: int = 1
    whole_rows: bool = False

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"model num_heads ({self.num_heads}) must be a multiple of num_kv_heads "
                f"({self.num_kv_heads})."
            )
        for rope in self.ropes:
            _check_rope(rope, self.rotated, self.head_dim)
        if self.latent is not None:
            self._check_latent(self.latent)

    def _check_latent(self, latent: LatentSpec) -> None:
        sizes = (self.num_kv_heads, self.head_dim)
        if sizes != (1, latent.kv_rank + self.rotated):
            raise ConfigError(
                f"model attention with latents of {latent.kv_rank} numbers and {self.rotated} "
                f"rotated ones must have one KV head of both, got (num_kv_heads, head_dim) {sizes}."
            )
        if self.clip is not None or self.head_norm is not None:
            raise ConfigError("model attention with latents must have no clip and no head norm.")

    @property
    def ropes(self) -> list[RopeConfig]:
        """The different rotary embeddings, each once."""
        return [rope for rope in choices(self.rope) if rope is not None]

    @property
    def rotated(self) -> int:
        """How many of a head's numbers are rotated."""
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    @property
    def query_dim(self) -> int:
        """Numbers of a head's query."""
        return self.head_dim if self.latent is None else self.latent.nope_dim + self.rotated

    @property
    def value_dim(self) -> int:
        """Numbers of a head's value, which the output projection reads."""
        return self.head_dim if self.latent is None else self.latent.value_dim

    @property
    def cached(self) -> tuple[int, int, int]:
        """What the cache holds for each token: keys and values (2) or keys (1), K, and D."""
        return 2 if self.latent is None else 1, self.num_kv_heads, self.head_dim


def _check_rope(rope: RopeConfig, rotated: int, head_dim: int) -> None:
    """Raises ConfigError if a rotary embedding does not fit the size of the heads."""
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
        width: F.
        gated: whether it is down(activation(gate(x)) * up(x)) instead of down(activation(up(x))).
        bias: whether its matrices have a bias.
        shared_by: over how many devices the width is cut; `width` is that of one.
        leaves: in how many parts a device adds up a row of the last product: see `Matrix`.
        whole_rows: as in `AttentionSpec`, of the last product.
    """

    width: int
    activation: Activation = "silu"
    gated: bool = True
    bias: bool = False
    shared_by: int = 1
    leaves: int = 1
    whole_rows: bool = False


@dataclasses.dataclass(frozen=True)
class RouterSpec:
    """How each token chooses `top_k` of X experts, and how much each of them counts: its weight.

    Attributes:
        num_experts: X.
        scores: "softmax" and "sigmoid" score all experts before the choice; "chosen_softmax" is the
            softmax of the chosen experts' logits.
        renormalise: whether the chosen scores are divided by their sum.
        scaling: factor of the weights.
        bias: whether the logits have a bias.
        selection_bias: whether a bias is added to the scores for the choice only.
        groups: the number of groups that the experts are divided into.
        top_groups: from how many groups a token may choose: those whose best experts have the
            highest sum of scores.
        judged: how many of a group's best experts count for that.

    Raises:
        ConfigError: top_k exceeds the experts, or the groups do not divide them.
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
    judged: int = 2

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
        dealt: whether devices share the experts by having whole ones, some of them, instead of a
            part of the width of each.
        dealt_to: how many devices have them; `router` is about the experts of all.
        leaves: in how many parts a device adds up the outputs of dealt experts, as a tree: those
            of experts whose numbers follow each other. Then devices add up to the same bits.
    """

    router: RouterSpec
    expert: MlpSpec
    shared: MlpSpec | None = None
    shared_gate: bool = False
    dealt: bool = False
    dealt_to: int = 1
    leaves: int = 1

    @property
    def shared_by(self) -> int:
        """How many devices share the experts, in either way."""
        return self.dealt_to if self.dealt else self.expert.shared_by

    @property
    def held(self) -> int:
        """How many experts a device has."""
        return self.router.num_experts // self.dealt_to


@dataclasses.dataclass(frozen=True)
class LayerSpec:
    """Attention and an MLP; the output of each part is added to the residual stream.

    Attention reads the stream through `input_norm`, the MLP through `mlp_norm`. The output of
    attention passes through `attention_output_norm`, that of the MLP through `mlp_output_norm`. A
    norm that is None changes nothing. Models that norm before each part have the first two, OLMo 2
    has the other two, and Gemma 2 has all four.

    Attributes:
        parallel: whether the MLP reads the same stream as attention, instead of the stream after
            attention. Without an `mlp_norm`, it then shares attention's `input_norm`.
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


def choices[T](setting: T | tuple[T, ...]) -> list[T]:
    """The different values of a setting: of all repetitions if it is a tuple, or the only one."""
    return list(dict.fromkeys(setting)) if isinstance(setting, tuple) else [setting]
