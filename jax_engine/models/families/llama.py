"""Llama 1 to 3, Vicuna, CodeLlama, Aquila, SmolLM2: RMS norms, RoPE, grouped queries, SwiGLU."""

from jax_engine.model_spec import AttentionSpec, LayerGroup, LayerSpec, MlpSpec, ModelSpec, NormSpec
from jax_engine.models.families.hf_config import (
    activation_from_hf,
    context_of,
    partly,
    rope_from_hf,
)
from jax_engine.models.hf_schemas import LlamaFields
from jax_engine.weights.transforms import Concatenate, Declaration

Fields = LlamaFields


def specification(fields: LlamaFields, rotated: float = 1.0) -> ModelSpec:
    """One group of equal layers.

    Args:
        rotated: the fraction of a head's numbers that RoPE rotates.
    """
    heads = fields.num_attention_heads
    head_dim = fields.head_dim or fields.hidden_size // heads
    attention = AttentionSpec(
        num_heads=heads,
        num_kv_heads=fields.num_key_value_heads or heads,
        head_dim=head_dim,
        rope=rope_from_hf(fields),
        rotary_dim=partly(head_dim, rotated),
        qkv_bias=bool(fields.attention_bias),
        output_bias=bool(fields.attention_bias),
    )
    return with_attention(fields, attention)


def with_attention(fields: LlamaFields, attention: AttentionSpec) -> ModelSpec:
    """Llama's layers with this attention."""
    rope, norm = rope_from_hf(fields), NormSpec(fields.rms_norm_eps)
    layer = LayerSpec(attention, mlp_of(fields), input_norm=norm, mlp_norm=norm)
    return ModelSpec(
        vocab_size=fields.vocab_size,
        width=fields.hidden_size,
        groups=(LayerGroup((layer,), fields.num_hidden_layers),),
        norm=norm,
        max_context_len=context_of(fields.max_position_embeddings, rope),
        tied=bool(fields.tie_word_embeddings),
    )


def mlp_of(fields: LlamaFields) -> MlpSpec:
    """The gated network of each layer."""
    activation = activation_from_hf(fields.hidden_act)
    return MlpSpec(fields.intermediate_size, activation, bias=bool(fields.mlp_bias))


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """The checkpoint's tensors that make each module of the decoder; {kind} is weight or bias."""
    attention, mlp = "model.layers.{layer}.self_attn", "model.layers.{layer}.mlp"
    one = spec.attentions[0]
    q, kv = one.num_heads * one.head_dim, one.num_kv_heads * one.head_dim
    return {
        "embed": "model.embed_tokens.{kind}",
        "layers.input_norm": "model.layers.{layer}.input_layernorm.{kind}",
        "layers.attention.qkv": Concatenate(
            [f"{attention}.{name}_proj.{{kind}}" for name in "qkv"], sizes=(q, kv, kv)
        ),
        "layers.attention.o": attention + ".o_proj.{kind}",
        "layers.mlp_norm": "model.layers.{layer}.post_attention_layernorm.{kind}",
        "layers.mlp.gate_up": Concatenate(
            [f"{mlp}.{name}_proj.{{kind}}" for name in ("gate", "up")]
        ),
        "layers.mlp.down": mlp + ".down_proj.{kind}",
        "norm": "model.norm.{kind}",
        "lm_head": "lm_head.{kind}",
    }
