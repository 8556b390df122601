"""Qwen 1: Llama with biases on q, k and v, under names of its own."""

import msgspec

from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import gpt2, llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import require
from jax_engine.models.hf_schemas import Epsilon, LlamaFields, Theta
from jax_engine.weights.transforms import Concatenate, Declaration


class Fields(msgspec.Struct, frozen=True):
    """config.json. Dynamic NTK and log-n scaling are not read: they begin beyond `seq_length`."""

    vocab_size: Size
    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    seq_length: Size = 8192
    kv_channels: Size | None = None
    layer_norm_epsilon: Epsilon = 1e-6
    rotary_emb_base: Theta = 10000.0
    rotary_pct: float = 1.0
    no_bias: bool = True
    scale_attn_weights: bool = True
    tie_word_embeddings: bool | None = False


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers; `intermediate_size` counts the rows of gate and up together."""
    require(fields, rotary_pct=1.0, no_bias=True, scale_attn_weights=True)
    as_llama = LlamaFields(
        vocab_size=fields.vocab_size,
        hidden_size=fields.hidden_size,
        intermediate_size=fields.intermediate_size // 2,
        num_hidden_layers=fields.num_hidden_layers,
        num_attention_heads=fields.num_attention_heads,
        max_position_embeddings=fields.seq_length,
        head_dim=fields.kv_channels,
        rms_norm_eps=fields.layer_norm_epsilon,
        rope_theta=fields.rotary_emb_base,
        tie_word_embeddings=fields.tie_word_embeddings,
    )
    return changed(llama.specification(as_llama), attention={"qkv_bias": True})


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """GPT-2's names, but for the gated network."""
    del spec
    gate_up = [f"transformer.h.{{layer}}.mlp.{name}.{{kind}}" for name in ("w2", "w1")]
    return {**gpt2.names(), "layers.mlp.gate_up": Concatenate(gate_up)}
