"""ModernBERT: an encoder that norms before each part; most layers see a window to both sides."""

from typing import ClassVar

import msgspec

from jax_engine.model_spec import (
    AttentionSpec,
    LayerGroup,
    LayerSpec,
    MlpSpec,
    ModelSpec,
    NormSpec,
    RopeConfig,
)
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families.hf_config import (
    FULL,
    SLIDING,
    activation_from_hf,
    check_layer_types,
    require_one_of,
    ropes_by_type,
)
from jax_engine.models.hf_schemas import Epsilon, RopeFields, Theta
from jax_engine.models.model_config import HeadLayers, HeadTask
from jax_engine.weights.transforms import Declaration


class Fields(msgspec.Struct, frozen=True):
    """config.json. `local_attention` is the whole window, of both sides."""

    two_ropes: ClassVar[bool] = True

    vocab_size: Size = 50368
    hidden_size: Size = 768
    intermediate_size: Size = 1152
    num_hidden_layers: Size = 22
    num_attention_heads: Size = 12
    hidden_activation: str = "gelu"
    max_position_embeddings: Size = 8192
    norm_eps: Epsilon = 1e-5
    norm_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    layer_types: list[str] | None = None
    global_attn_every_n_layers: Size = 3
    local_attention: Size = 128
    global_rope_theta: Theta = 160000.0
    local_rope_theta: Theta = 10000.0
    rope_theta: Theta = 10000.0  # of no layer: `RopeSource` has it
    rope_scaling: RopeFields | None = None
    rope_parameters: RopeFields | None = None
    original_max_position_embeddings: Size | None = None
    classifier_pooling: str = "cls"
    classifier_bias: bool = False
    classifier_activation: str = "gelu"


def specification(fields: Fields) -> ModelSpec:
    """A first layer without a norm before attention, since the embedding has one; equal others.

    Raises:
        ConfigError: A layer is of an unknown type.
    """
    width, count = fields.hidden_size, fields.num_hidden_layers
    every = fields.global_attn_every_n_layers
    types = fields.layer_types or [SLIDING if at % every else FULL for at in range(count)]
    check_layer_types(types, count)
    norm = NormSpec(fields.norm_eps, "layer", bias=fields.norm_bias)
    older = RopeConfig(fields.global_rope_theta), RopeConfig(fields.local_rope_theta)
    full, sliding = ropes_by_type(fields) or older

    def layers(types: list[str], input_norm: NormSpec | None) -> LayerGroup:
        attention = AttentionSpec(
            num_heads=fields.num_attention_heads,
            num_kv_heads=fields.num_attention_heads,
            head_dim=width // fields.num_attention_heads,
            rope=tuple(sliding if one == SLIDING else full for one in types),
            window=tuple(
                fields.local_attention // 2 + 1 if one == SLIDING else None for one in types
            ),
            causal=False,
            qkv_bias=fields.attention_bias,
            output_bias=fields.attention_bias,
        )
        activation = activation_from_hf(fields.hidden_activation, "hidden_activation")
        mlp = MlpSpec(fields.intermediate_size, activation, bias=fields.mlp_bias)
        layer = LayerSpec(attention, mlp, input_norm=input_norm, mlp_norm=norm)
        return LayerGroup((layer,), len(types))

    groups = [layers(types[:1], None), *([layers(types[1:], norm)] if count > 1 else [])]
    return ModelSpec(
        vocab_size=fields.vocab_size,
        width=width,
        groups=tuple(groups),
        norm=norm,
        max_context_len=fields.max_position_embeddings,
        embedding_norm=norm,
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """The checkpoint's tensors that make each module."""
    layer = "model.layers.{layer}"
    return {
        "embed": "model.embeddings.tok_embeddings.{kind}",
        "embed_norm": "model.embeddings.norm.{kind}",
        "layers.input_norm": f"{layer}.attn_norm.{{kind}}",
        "layers.attention.qkv": f"{layer}.attn.Wqkv.{{kind}}",
        "layers.attention.o": f"{layer}.attn.Wo.{{kind}}",
        "layers.mlp_norm": f"{layer}.mlp_norm.{{kind}}",
        "layers.mlp.gate_up": f"{layer}.mlp.Wi.{{kind}}",
        "layers.mlp.down": f"{layer}.mlp.Wo.{{kind}}",
        "norm": "model.final_norm.{kind}",
    }


def head(fields: Fields, task: HeadTask) -> HeadLayers:
    """Scores of the first state, the mean or each state, behind a matrix and a norm."""
    require_one_of(fields, "classifier_pooling", ("cls", "mean"))
    return HeadLayers(
        "classifier",
        "CLS" if fields.classifier_pooling == "cls" else "MEAN",
        dense="head.dense",
        activation=activation_from_hf(fields.classifier_activation, "classifier_activation"),
        norm="head.norm",
        eps=fields.norm_eps,
    )
