"""A model's specification, as plain data: rotary embedding, layers, their groups, and the whole.

`RopeConfig` has the frequencies of a rotary embedding, and how they reach beyond the trained
context. `LayerSpec` is a layer: its norms, its attention, its feed-forward network. Each default is
Llama's; a setting with another value is a knob that some family turns. `ModelSpec` is the whole:
embedding, groups of layers, final norm and head.

Compile time must not grow with depth, so layers are scanned over. A group repeats a pattern of
layers: the scan runs over the repetitions, and the pattern is unrolled inside. Llama is one group
whose pattern is a single layer. Layers that differ only by a number, such as their window, can be
repetitions, too: each has its own. Layers of another shape at an end are another group.
"""

import dataclasses
from typing import Literal, get_args

from jax_engine.errors import ConfigError

RopeType = Literal["none", "linear", "dynamic", "llama3", "yarn", "longrope"]


@dataclasses.dataclass(frozen=True)
class RopeConfig:
    """Rotary embedding: the base `theta`, and how it is stretched beyond the trained context.

    `factor` is the stretch; `original_max_position_embeddings` is the trained context, needed by
    llama3 and yarn. `frequency_factors` (D/2 divisors, from a GGUF file's rope_freqs tensor) is the
    result of the llama3 formula and replaces it. longrope has two sets of them, `short_factors` and
    `long_factors`; `for_length` chooses. Raises ConfigError for an invalid value.
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
    short_factors: tuple[float, ...] | None = None
    long_factors: tuple[float, ...] | None = None

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
        if self.type == "longrope":
            _require_original_context(self)
            if self.short_factors is None or self.long_factors is None:
                raise ConfigError("rope type 'longrope' needs short_factor and long_factor.")

    def for_length(self, max_model_len: int) -> "RopeConfig":
        """The same embedding for sequences of at most so many tokens.

        Cached keys cannot be rotated again when a sequence outgrows the trained context. So one set
        of longrope's factors serves all sequences of an engine, as in vLLM.
        """
        if self.type != "longrope":
            return self
        is_long = max_model_len > (self.original_max_position_embeddings or 0)
        chosen = self.long_factors if is_long else self.short_factors
        return dataclasses.replace(self, frequency_factors=chosen)


def _require_original_context(rope: RopeConfig) -> None:
    if not rope.original_max_position_embeddings:
        raise ConfigError(f"rope type {rope.type!r} needs original_max_position_embeddings > 0.")


Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu2", "clipped_swiglu", "xielu"]


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
    """A norm of queries and keys.

    Attributes:
        whole: whether a token's heads are one vector to the norm, instead of a vector each.
        rotated_first: whether queries and keys are rotated before the norm, instead of after it.
    """

    whole: bool = False
    rotated_first: bool = False


@dataclasses.dataclass(frozen=True)
class QueryGrowth:
    """Queries grow with their position p: they are multiplied by 1 + beta ln(1 + place // length).

    Ministral 3 does this to keep attention sharp in long contexts.

    Attributes:
        first: the place of position 0: the place of p is p + first.
    """

    beta: float
    length: int
    first: int = 0


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
        window: a query sees this many of the last positions, its own included; None: all. If it
            is not causal, as many of the next ones, too.
        chunk: positions lie in chunks of this many, and a query sees those of its own chunk only;
            None: all. A chunk must be a whole number of the cache's blocks.
        scale: factor of the scores; None: query_dim ** -0.5.
        query_growth: how queries grow with their position; None: they do not.
        soft_cap: scores s become soft_cap * tanh(s / soft_cap); None: they stay.
        alibi_slopes: for each head, what a score loses for each position between query and key.
        causal: whether a query sees no position behind its own. Else it sees its whole sequence,
            and there is no cache: an encoder.
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
    chunk: int | None = None
    scale: float | None = None
    query_growth: QueryGrowth | None = None
    soft_cap: float | None = None
    alibi_slopes: tuple[float, ...] | None = None
    causal: bool = True
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
        activation: "xielu" has learned numbers, and is that of a network without a gate.
        gated: whether it is down(activation(gate(x)) * up(x)) instead of down(activation(up(x))).
        bias: whether its matrices have a bias.
        shared_by: over how many devices the width is cut; `width` is that of one.
        leaves: in how many parts a device adds up a row of the last product: see `Matrix`.
        whole_rows: as in `AttentionSpec`, of the last product.

    Raises:
        ConfigError: a gated network has the activation "xielu".
    """

    width: int
    activation: Activation = "silu"
    gated: bool = True
    bias: bool = False
    shared_by: int = 1
    leaves: int = 1
    whole_rows: bool = False

    def __post_init__(self) -> None:
        if self.gated and self.activation == "xielu":
            raise ConfigError("model activation 'xielu' must be of a network without a gate.")


@dataclasses.dataclass(frozen=True)
class RouterSpec:
    """How each token chooses `top_k` of X experts, and how much each of them counts: its weight.

    Attributes:
        num_experts: X.
        scores: "softmax" and "sigmoid" score all experts before the choice; "chosen_softmax" and
            "chosen_sigmoid" are those of the chosen experts' logits.
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
    scores: Literal["softmax", "chosen_softmax", "sigmoid", "chosen_sigmoid"] = "softmax"
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
        scaled_input: whether an expert's input is multiplied by its weight, instead of its output.
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
    scaled_input: bool = False
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
    has the other two, and Gemma 2 has all four. BERT, which is `post_norm`, has the other two: they
    norm the stream after a part's output was added, and what they give is the stream from there on.

    Attributes:
        parallel: whether the MLP reads the same stream as attention, instead of the stream after
            attention. Without an `mlp_norm`, it then shares attention's `input_norm`.
        residual_factor: factor of each part's output.
        post_norm: whether a part's norm is of the sum of its output and the stream.
    """

    attention: AttentionSpec
    mlp: MlpSpec | ExpertsSpec
    input_norm: NormSpec | None = None
    attention_output_norm: NormSpec | None = None
    mlp_norm: NormSpec | None = None
    mlp_output_norm: NormSpec | None = None
    parallel: bool = False
    residual_factor: float = 1.0
    post_norm: bool = False


def choices[T](setting: T | tuple[T, ...]) -> list[T]:
    """The different values of a setting: of all repetitions if it is a tuple, or the only one."""
    return list(dict.fromkeys(setting)) if isinstance(setting, tuple) else [setting]


@dataclasses.dataclass(frozen=True)
class LayerGroup:
    """A pattern of layers, repeated.

    Attributes:
        pattern: layers that run one after another in each repetition.

    Raises:
        ConfigError: a `rope` or `window` is a tuple that is not `repeats` long.
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
    """A decoder or an encoder. Hashable: it is static in compiled functions.

    Attributes:
        width: E, the width of the residual stream.
        norm: the norm before the head; None: none.
        max_context_len: longest context that the positions were made for, in tokens.
        tied, head_bias: whether the embedding is also the head, and whether the head has a bias.
        unit_columns: whether each column of the head has the length 1; the loader sees to it.
        learned_positions: P, rows of a table that is added to the embedding; None: none is.
        first_position: the row of the first position in that table.
        token_types: rows of a table for the types of tokens, which is added, too; None: none is.
        embedding_factor, embedding_norm: factor and norm of the embedding; None: no norm.
        scales_inputs: whether vectors in place of tokens get the factor; else the table's do alone.
        logits_factor, logits_cap: f and c: logits x become c * tanh(f x / c); without a cap f x.
        shared_by: over how many devices the vocabulary is cut, as the layers are; `vocab_size` is
            that of all together.
        first_layer: the number of the first layer; not 0 in a stage that others precede.
        has_embedding: whether it begins with token ids; else with what the stage before hands on.
        has_head: whether it ends with the norm and the head; else it hands on what it has.

    Raises:
        ConfigError: layers need KV caches of different shapes, or a tied head has a bias.
    """

    vocab_size: int
    width: int
    groups: tuple[LayerGroup, ...]
    norm: NormSpec | None
    max_context_len: int
    tied: bool = False
    head_bias: bool = False
    unit_columns: bool = False
    learned_positions: int | None = None
    first_position: int = 0
    token_types: int | None = None
    embedding_factor: float = 1.0
    embedding_norm: NormSpec | None = None
    scales_inputs: bool = False
    logits_factor: float = 1.0
    logits_cap: float | None = None
    shared_by: int = 1
    first_layer: int = 0
    has_embedding: bool = True
    has_head: bool = True

    def __post_init__(self) -> None:
        shapes = {one.cached for one in self.attentions}
        if len(shapes) != 1:
            raise ConfigError(
                "all layers must have KV heads of one number and one size, got "
                f"(2 or 1, num_kv_heads, head_dim) of {sorted(shapes)}."
            )
        if self.tied and self.head_bias:
            raise ConfigError(
                "model tie_word_embeddings must be false if its head has a bias, got true."
            )

    @property
    def layers(self) -> list[LayerSpec]:
        """The layers of all patterns, without repetitions."""
        return [layer for group in self.groups for layer in group.pattern]

    @property
    def experts(self) -> list[ExpertsSpec]:
        """The experts of those of `layers` that have some."""
        return [layer.mlp for layer in self.layers if isinstance(layer.mlp, ExpertsSpec)]

    @property
    def attentions(self) -> list[AttentionSpec]:
        """The attention of each of `layers`."""
        return [layer.attention for layer in self.layers]

    @property
    def is_encoder(self) -> bool:
        """Whether tokens see their whole sequence: there is no cache, and no head for tokens."""
        return not self.attentions[0].causal

    @property
    def num_layers(self) -> int:
        return sum(group.num_layers for group in self.groups)

    @property
    def num_heads(self) -> int:
        """The most query heads that a layer has."""
        return max(one.num_heads for one in self.attentions)

    @property
    def cached(self) -> tuple[int, int, int]:
        """What the KV cache holds for each token in each layer; see `AttentionSpec.cached`."""
        return self.attentions[0].cached

    @property
    def has_latents(self) -> bool:
        """Whether the KV cache holds latents, in place of each head's keys and values."""
        return self.attentions[0].latent is not None

    @property
    def num_kv_heads(self) -> int:
        return self.attentions[0].num_kv_heads

    @property
    def head_dim(self) -> int:
        return self.attentions[0].head_dim

    @property
    def vocab_share(self) -> int:
        """Rows of the embedding and of the head on one device; the last device's may be padding."""
        return -(-self.vocab_size // self.shared_by)

    def numbers(self, group: int, place: int) -> range:
        """The numbers, counted over the whole model, of the layers at a place of a pattern."""
        first = self.first_layer + sum(one.num_layers for one in self.groups[:group])
        last, period = first + self.groups[group].num_layers, len(self.groups[group].pattern)
        return range(first + place, last, period)

    def for_length(self, max_model_len: int) -> "ModelSpec":
        """The same model for at most `max_model_len` tokens; see `RopeConfig.for_length`."""

        def chosen(rope: RopeConfig | None) -> RopeConfig | None:
            return None if rope is None else rope.for_length(max_model_len)

        def of_layer(layer: LayerSpec) -> LayerSpec:
            given, size = layer.attention.rope, layer.attention.chunk
            rope = tuple(map(chosen, given)) if isinstance(given, tuple) else chosen(given)
            # A chunk that is as long holds all positions.
            chunk = size if size is not None and size < max_model_len else None
            attention = dataclasses.replace(layer.attention, rope=rope, chunk=chunk)
            return dataclasses.replace(layer, attention=attention)

        patterns = [tuple(map(of_layer, group.pattern)) for group in self.groups]
        pairs = zip(self.groups, patterns, strict=True)
        groups = tuple(dataclasses.replace(group, pattern=one) for group, one in pairs)
        return dataclasses.replace(self, groups=groups)
