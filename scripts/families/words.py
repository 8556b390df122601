"""Short words for what a specification says, column by column of the table.

A column is made of *facets*: functions from a specification to a word, or to "" where there is
nothing to say.
"""

from collections.abc import Callable, Sequence

from jax_engine.model_spec import LayerSpec, MlpSpec, NormSpec
from jax_engine.models.model_config import ModelConfig
from jax_engine.weights.transforms import AddOne, Constant
from scripts.families.models import layers_of

Facet = Callable[[ModelConfig], str]
ACTIVATIONS = {
    "silu": "SiLU",
    "gelu": "GELU",
    "gelu_tanh": "GELU (tanh)",
    "relu": "ReLU",
    "relu2": "ReLU²",
    "clipped_swiglu": "clipped SwiGLU",
    "xielu": "xIELU",
}


def pattern(flags: Sequence[bool]) -> tuple[int, int] | None:
    """(a, b) if a layers with the flag and b without alternate, beginning with the a."""
    a = flags.index(False) if False in flags else len(flags)
    b = flags[a:].index(True) if True in flags[a:] else len(flags) - a
    repeats = all(flag == (n % (a + b) < a) for n, flag in enumerate(flags))
    return (a, b) if a and b and repeats else None


def rotation(config: ModelConfig) -> str:
    """Which tables rotate queries and keys, and in which layers; "" if none does."""
    layers = layers_of(config.spec)
    rotated = [layer.attention.rope is not None for layer in layers]
    if not any(rotated):
        return ""
    tables = {layer.attention.rope for layer in layers} - {None}
    words, found = "RoPE" if len(tables) == 1 else f"{len(tables)} RoPE tables", pattern(rotated)
    return words if found is None else f"{words} in {found[0]} of {sum(found)} layers"


def rotated_part(config: ModelConfig) -> str:
    one = config.spec.attentions[0]
    return "part of each head" if one.ropes and one.rotated < one.head_dim else ""


def stretch(config: ModelConfig) -> str:
    """How rotation reaches beyond the trained context."""
    names = {"none": "", "yarn": "YaRN", "longrope": "LongRoPE"}
    types = {rope.type for one in config.spec.attentions for rope in one.ropes}
    return ", ".join(sorted({names.get(one, one) for one in types} - {""}))


def positions(config: ModelConfig) -> str:
    spec = config.spec
    if spec.learned_positions is not None:
        return "learned"
    return "ALiBi" if spec.attentions[0].alibi_slopes is not None else rotation(config)


def token_types(config: ModelConfig) -> str:
    return "types of tokens" if (config.spec.token_types or 0) > 1 else ""


def growth(config: ModelConfig) -> str:
    """Whether queries grow, in all layers or in those that do not rotate them."""
    grows = [one.query_growth is not None for one in config.spec.attentions]
    if not any(grows):
        return ""
    return "queries grow" if all(grows) else "queries grow where RoPE is not"


def norm_kind(config: ModelConfig) -> str:
    norm = config.spec.norm or config.spec.embedding_norm
    assert norm is not None
    declared = config.weights.get("norm.weight", config.weights.get("norm"))
    words = kind_of(norm)
    if isinstance(declared, AddOne):
        words += " of 1 + w"
    return words + (" or weight" if isinstance(declared, Constant) else "")


def kind_of(norm: NormSpec) -> str:
    if norm.kind == "rms":
        return "RMSNorm"
    return "LayerNorm" if norm.bias else "LayerNorm without bias"


def placement(layer: LayerSpec) -> str:
    """Where a layer's norms are."""
    if layer.post_norm:
        return "after each sum"
    if layer.parallel:
        return "one before both" if layer.mlp_norm is None else "one before each"
    if layer.input_norm is None:
        return "after"
    return "before" if layer.attention_output_norm is None else "before and after"


def norm_places(config: ModelConfig) -> str:
    return placement(config.spec.layers[-1])


def embedding_norm(config: ModelConfig) -> str:
    return "" if config.spec.embedding_norm is None else "of the embedding"


def heads(config: ModelConfig) -> str:
    if config.spec.attentions[0].latent is not None:
        return "MLA"
    heads, kv_heads = config.spec.num_heads, config.spec.num_kv_heads
    return "MHA" if kv_heads == heads else "MQA" if kv_heads == 1 else "GQA"


def window(config: ModelConfig) -> str:
    flags = [layer.attention.window is not None for layer in layers_of(config.spec)]
    if not any(flags):
        return ""
    found = pattern(flags)
    if found is not None:
        return f"window {found[0]}:{found[1]}"
    return "window in all layers" if all(flags) else "window in later layers"


def chunks(config: ModelConfig) -> str:
    flags = [layer.attention.chunk is not None for layer in layers_of(config.spec)]
    if not any(flags):
        return ""
    found = pattern(flags)
    return "chunks in all layers" if found is None else f"chunks {found[0]}:{found[1]}"


def sinks(config: ModelConfig) -> str:
    return "sinks" if config.spec.attentions[0].sinks else ""


def soft_cap(config: ModelConfig) -> str:
    return "" if config.spec.attentions[0].soft_cap is None else "soft cap"


def scale(config: ModelConfig) -> str:
    return "" if config.spec.attentions[0].scale is None else "own scale"


def head_norm(config: ModelConfig) -> str:
    norm = next((one.head_norm for one in config.spec.attentions if one.head_norm), None)
    if norm is None:
        return ""
    words = "q/k norm" if norm.kind == "rms" else "q/k LayerNorm"
    return words + " over all heads" * norm.whole + " after RoPE" * norm.rotated_first


def attention_bias(config: ModelConfig) -> str:
    one = config.spec.attentions[0]
    if one.qkv_bias:
        return "qkv and o bias" if one.output_bias else "qkv bias"
    return "o bias" if one.output_bias else ""


def clip(config: ModelConfig) -> str:
    return "" if config.spec.attentions[0].clip is None else "clip"


def network(mlp: MlpSpec) -> str:
    """A feed-forward network: whether it has a gate, and its activation."""
    kind = "" if mlp.activation == "clipped_swiglu" else "gated " if mlp.gated else "plain "
    return kind + ACTIVATIONS[mlp.activation]


def dense(config: ModelConfig) -> str:
    """The network of layers without experts; "" if all have some."""
    return " or ".join({network(one): "" for one in _dense(config)})


def dense_bias(config: ModelConfig) -> str:
    return "bias" if any(one.bias for one in _dense(config)) else ""


def _dense(config: ModelConfig) -> list[MlpSpec]:
    return [layer.mlp for layer in config.spec.layers if isinstance(layer.mlp, MlpSpec)]


def has_experts(config: ModelConfig) -> str:
    return "experts" if config.spec.experts else ""


def residual(config: ModelConfig) -> str:
    return "parallel" if config.spec.layers[0].parallel else "sequential"


def residual_factor(config: ModelConfig) -> str:
    return "" if config.spec.layers[0].residual_factor == 1 else "factor"


def head(config: ModelConfig) -> str:
    spec = config.spec
    return "tied" if spec.tied else "own with bias" if spec.head_bias else "own"


def embedding_factor(config: ModelConfig) -> str:
    return "" if config.spec.embedding_factor == 1 else "embedding factor"


def logits(config: ModelConfig) -> str:
    factor = ["logits factor"] * (config.spec.logits_factor != 1)
    return "; ".join(factor + ["logits cap"] * (config.spec.logits_cap is not None))


COLUMNS: dict[str, tuple[Facet, ...]] = {
    "positions": (positions, rotated_part, stretch, growth),
    "norms": (norm_kind, norm_places, embedding_norm),
    "attention": (heads, window, chunks, head_norm, attention_bias, sinks, soft_cap, scale, clip),
    "MLP": (has_experts, dense, dense_bias),
    "residual": (residual, residual_factor),
    "embedding and head": (head, embedding_factor, logits),
}


def cell(configs: Sequence[ModelConfig], facets: Sequence[Facet]) -> str:
    """What the models of a family have: in brackets what only some of them have."""
    words = []
    for facet in facets:
        found = dict.fromkeys(facet(config) for config in configs)
        said = " or ".join(word for word in found if word)
        if said:
            words.append(f"({said})" if "" in found else said)
    return "; ".join(words) or "none"
