"""Llama 1-3, Vicuna, CodeLlama, SmolLM2: equal layers, with Hugging Face's weight names."""

from collections.abc import Mapping
from typing import Any

from jax_engine.errors import ConfigError
from jax_engine.file_schema import checked
from jax_engine.model_spec import AttentionSpec, LayerGroup, LayerSpec, MlpSpec, ModelSpec
from jax_engine.models.config import ModelConfig
from jax_engine.models.families.hf_config import FILE, rope_from_hf, token_ids
from jax_engine.models.schemas import LlamaFields
from jax_engine.weights.transforms import Concatenate, Declaration

ARCHITECTURE = "LlamaForCausalLM"

# Derived values that old checkpoints contain.
IGNORED_SUFFIXES: tuple[str, ...] = ("rotary_emb.inv_freq",)


def from_hf(raw: Mapping[str, Any]) -> ModelConfig:
    """ModelConfig from a `config.json` dictionary. Raises ConfigError."""
    fields = checked(raw, LlamaFields, FILE)
    if fields.hidden_act not in ("silu", "swish"):
        raise ConfigError(
            f"config.json: hidden_act {fields.hidden_act!r} is not supported; known: silu."
        )
    num_heads = fields.num_attention_heads
    return ModelConfig(
        architecture=ARCHITECTURE,
        vocab_size=fields.vocab_size,
        hidden_size=fields.hidden_size,
        intermediate_size=fields.intermediate_size,
        num_layers=fields.num_hidden_layers,
        num_heads=num_heads,
        num_kv_heads=fields.num_key_value_heads or num_heads,
        head_dim=fields.head_dim or fields.hidden_size // num_heads,
        max_position_embeddings=fields.max_position_embeddings,
        rms_norm_eps=fields.rms_norm_eps,
        rope=rope_from_hf(fields),
        tie_word_embeddings=bool(fields.tie_word_embeddings),
        attention_bias=bool(fields.attention_bias),
        mlp_bias=bool(fields.mlp_bias),
        eos_token_ids=token_ids(fields.eos_token_id),
        bos_token_id=fields.bos_token_id,
    )


def specification(config: ModelConfig) -> ModelSpec:
    """One group of equal layers."""
    attention = AttentionSpec(
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        rope=config.rope,
        window=config.sliding_window,
        bias=config.attention_bias,
    )
    mlp = MlpSpec(config.intermediate_size, bias=config.mlp_bias)
    layer = LayerSpec(attention, mlp, config.rms_norm_eps)
    return ModelSpec(
        vocab_size=config.vocab_size,
        width=config.hidden_size,
        groups=(LayerGroup((layer,), config.num_layers),),
        norm_eps=config.rms_norm_eps,
        tied=config.tie_word_embeddings,
    )


def weights(config: ModelConfig) -> dict[str, Declaration]:
    """The checkpoint's tensors that make each module of the decoder; {kind} is weight or bias."""
    attention, mlp = "model.layers.{layer}.self_attn", "model.layers.{layer}.mlp"
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    width = config.intermediate_size
    return {
        "embed": "model.embed_tokens.{kind}",
        "layers.input_norm": "model.layers.{layer}.input_layernorm.{kind}",
        "layers.attention.qkv": Concatenate(
            [f"{attention}.{name}_proj.{{kind}}" for name in "qkv"], sizes=(q, kv, kv)
        ),
        "layers.attention.o": attention + ".o_proj.{kind}",
        "layers.post_attention_norm": "model.layers.{layer}.post_attention_layernorm.{kind}",
        "layers.mlp.gate_up": Concatenate(
            [f"{mlp}.{name}_proj.{{kind}}" for name in ("gate", "up")], sizes=(width, width)
        ),
        "layers.mlp.down": mlp + ".down_proj.{kind}",
        "norm": "model.norm.{kind}",
        "lm_head": "lm_head.{kind}",
    }
