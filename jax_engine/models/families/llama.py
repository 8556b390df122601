"""Llama 1-3, Vicuna, CodeLlama, SmolLM2: the decoder as it is, with Hugging Face's names."""

from collections.abc import Mapping
from typing import Any

from jax_engine.errors import ConfigError
from jax_engine.file_schema import checked
from jax_engine.models.config import ModelConfig
from jax_engine.models.families.hf_config import FILE, rope_from_hf, token_ids
from jax_engine.models.schemas import LlamaFields

ARCHITECTURE = "LlamaForCausalLM"

WEIGHTS: dict[str, tuple[str, ...]] = {
    # leaf of the decoder: the checkpoint tensors that are laid one under another to make it;
    # {layer} runs over the stacked first axis.
    "embed.weight": ("model.embed_tokens.weight",),
    "layers.input_norm.weight": ("model.layers.{layer}.input_layernorm.weight",),
    "layers.attention.qkv.weight": (
        "model.layers.{layer}.self_attn.q_proj.weight",
        "model.layers.{layer}.self_attn.k_proj.weight",
        "model.layers.{layer}.self_attn.v_proj.weight",
    ),
    "layers.attention.qkv.bias": (
        "model.layers.{layer}.self_attn.q_proj.bias",
        "model.layers.{layer}.self_attn.k_proj.bias",
        "model.layers.{layer}.self_attn.v_proj.bias",
    ),
    "layers.attention.o.weight": ("model.layers.{layer}.self_attn.o_proj.weight",),
    "layers.attention.o.bias": ("model.layers.{layer}.self_attn.o_proj.bias",),
    "layers.post_attention_norm.weight": ("model.layers.{layer}.post_attention_layernorm.weight",),
    "layers.mlp.gate_up.weight": (
        "model.layers.{layer}.mlp.gate_proj.weight",
        "model.layers.{layer}.mlp.up_proj.weight",
    ),
    "layers.mlp.gate_up.bias": (
        "model.layers.{layer}.mlp.gate_proj.bias",
        "model.layers.{layer}.mlp.up_proj.bias",
    ),
    "layers.mlp.down.weight": ("model.layers.{layer}.mlp.down_proj.weight",),
    "layers.mlp.down.bias": ("model.layers.{layer}.mlp.down_proj.bias",),
    "norm.weight": ("model.norm.weight",),
    "lm_head.weight": ("lm_head.weight",),
}

# Derived values that old checkpoints carry along.
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
