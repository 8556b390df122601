"""A model's specification: embedding, groups of layers, final norm and head, as plain data.

Compile time must not grow with depth, so layers are scanned over. A group repeats a pattern of
layers: the scan runs over the repetitions, and the pattern is unrolled inside. Llama is one group
whose pattern is a single layer. Layers that differ only by a number, such as their window, can be
repetitions, too: the number is given for each. Layers of another shape at the beginning or the end
are another group.
"""

import dataclasses

from jax_engine.errors import ConfigError
from jax_engine.layer_spec import AttentionSpec, ExpertsSpec, LayerSpec, NormSpec
from jax_engine.rope_config import RopeConfig


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
        logits_cap: logits x become logits_cap * tanh(x / logits_cap); None: they stay.
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
    learned_positions: int | None = None
    embedding_factor: float = 1.0
    embedding_norm: NormSpec | None = None
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
            given = layer.attention.rope
            rope = tuple(map(chosen, given)) if isinstance(given, tuple) else chosen(given)
            attention = dataclasses.replace(layer.attention, rope=rope)
            return dataclasses.replace(layer, attention=attention)

        groups = (
            dataclasses.replace(group, pattern=tuple(map(of_layer, group.pattern)))
            for group in self.groups
        )
        return dataclasses.replace(self, groups=tuple(groups))
