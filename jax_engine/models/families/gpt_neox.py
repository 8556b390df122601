"""GPT-NeoX, Pythia: attention and MLP in parallel, each after its own layer norm; partial RoPE."""

import msgspec

from jax_engine.model_spec import AttentionSpec, LayerGroup, LayerSpec, MlpSpec, ModelSpec, NormSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families.hf_config import (
    activation_from_hf,
    context_of,
    partial_factor,
    partly,
    rope_from_hf,
)
from jax_engine.models.hf_schemas import Epsilon, Fraction, RopeFields, Theta
from jax_engine.weights.transforms import Declaration, ungrouped


class Fields(msgspec.Struct, frozen=True):
    """config.json, with the older names of rotary fields."""

    vocab_size: Size
    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    max_position_embeddings: Size = 2048
    hidden_act: str = "gelu"
    layer_norm_eps: Epsilon = 1e-5
    use_parallel_residual: bool = True
    attention_bias: bool = True
    rotary_pct: Fraction = 0.25
    rotary_emb_base: Theta = 10000.0
    partial_rotary_factor: Fraction | None = None
    rope_scaling: RopeFields | None = None
    rope_parameters: RopeFields | None = None
    original_max_position_embeddings: Size | None = None
    tie_word_embeddings: bool | None = False

    @property
    def rope_theta(self) -> float:
        return self.rotary_emb_base


def specification(fields: Fields) -> ModelSpec:
    """Equal layers with biases everywhere but in the head."""
    size, bias = fields.hidden_size // fields.num_attention_heads, fields.attention_bias
    rope, norm = rope_from_hf(fields), NormSpec(fields.layer_norm_eps, "layer", bias=True)
    attention = AttentionSpec(
        num_heads=fields.num_attention_heads,
        num_kv_heads=fields.num_attention_heads,
        head_dim=size,
        rope=rope,
        rotary_dim=partly(size, partial_factor(fields, fields.rotary_pct)),
        qkv_bias=bias,
        output_bias=bias,
    )
    activation = activation_from_hf(fields.hidden_act)
    mlp = MlpSpec(fields.intermediate_size, activation, gated=False, bias=True)
    layer = LayerSpec(
        attention, mlp, input_norm=norm, mlp_norm=norm, parallel=fields.use_parallel_residual
    )
    return ModelSpec(
        vocab_size=fields.vocab_size,
        width=fields.hidden_size,
        groups=(LayerGroup((layer,), fields.num_hidden_layers),),
        norm=norm,
        max_context_len=context_of(fields.max_position_embeddings, rope),
        tied=bool(fields.tie_word_embeddings),
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """q, k and v of a head are stored together."""
    layer = "gpt_neox.layers.{layer}"
    qkv = f"{layer}.attention.query_key_value.{{kind}}"
    return {
        "embed": "gpt_neox.embed_in.{kind}",
        "layers.input_norm": f"{layer}.input_layernorm.{{kind}}",
        "layers.attention.qkv": ungrouped(qkv, spec.num_heads, (1, 1, 1), spec.head_dim),
        "layers.attention.o": f"{layer}.attention.dense.{{kind}}",
        "layers.mlp_norm": f"{layer}.post_attention_layernorm.{{kind}}",
        "layers.mlp.up": f"{layer}.mlp.dense_h_to_4h.{{kind}}",
        "layers.mlp.down": f"{layer}.mlp.dense_4h_to_h.{{kind}}",
        "norm": "gpt_neox.final_layer_norm.{kind}",
        "lm_head": "embed_out.{kind}",
    }
