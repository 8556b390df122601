"""What the families with multi-head latent attention share: their sizes, and their tensors."""

import math

from jax_engine.model_spec import AttentionSpec, LatentSpec, ModelSpec, NormSpec, RopeConfig
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama
from jax_engine.models.families.hf_config import rope_from_hf
from jax_engine.models.hf_schemas import LlamaFields
from jax_engine.weights.transforms import (
    Concatenate,
    Constant,
    Declaration,
    Heads,
    Transpose,
    rope_halves,
    split,
)

NORM = NormSpec(1e-6)  # of latents; no configuration has another


class Fields(LlamaFields, frozen=True):
    """Llama's fields and the sizes of latents and heads."""

    kv_lora_rank: Size = 512
    q_lora_rank: Size | None = 1536
    qk_nope_head_dim: Size = 128
    qk_rope_head_dim: Size = 64
    v_head_dim: Size | None = 128


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with latent attention."""
    rope, heads = rope_from_hf(fields), fields.num_attention_heads
    plain, rotated = fields.qk_nope_head_dim, fields.qk_rope_head_dim
    value_dim = fields.v_head_dim or fields.hidden_size // heads
    attention = AttentionSpec(
        num_heads=heads,
        num_kv_heads=1,
        head_dim=fields.kv_lora_rank + rotated,
        rope=rope,
        rotary_dim=rotated,
        scale=(plain + rotated) ** -0.5 * _sharpened(rope) ** 2,
        qkv_bias=bool(fields.attention_bias),
        output_bias=bool(fields.attention_bias),
        latent=LatentSpec(fields.kv_lora_rank, plain, value_dim, NORM, fields.q_lora_rank),
    )
    return llama.with_attention(fields, attention)


def _sharpened(rope: RopeConfig) -> float:
    """How much longer queries and keys become where YaRN stretches positions (DeepSeek V2)."""
    if rope.type == "none" or not rope.mscale_all_dim or rope.factor <= 1:
        return 1.0
    return 1 + 0.1 * rope.mscale_all_dim * math.log(rope.factor)


def weights(spec: ModelSpec, *, interleaved: bool) -> dict[str, Declaration]:
    """Llama's names, and those of the products that make latents and heads.

    Args:
        interleaved: whether the checkpoint's RoPE rotates neighbouring numbers.
    """
    prefix, one = "model.layers.{layer}.self_attn", spec.attentions[0]
    latent, rotated = one.latent, one.rotated
    assert latent is not None
    queries = one.num_heads * one.query_dim

    def turned(part: str, heads: int, size: int) -> Declaration:
        """The last rows of each head are rotated."""
        halves = rope_halves(part, heads, size, rotated, start=size - rotated)
        return halves if interleaved else part

    def of_heads(start: int, stop: int) -> Declaration:
        total = latent.nope_dim + latent.value_dim
        return split(Heads(f"{prefix}.kv_b_proj.weight"), start, stop, total, axis=1)

    names = ("q_proj",) if latent.q_rank is None else ("q_a_proj", "q_b_proj")
    whole = turned(f"{prefix}.{names[-1]}.weight", one.num_heads, one.query_dim)
    first = whole if latent.q_rank is None else f"{prefix}.q_a_proj.weight"
    bias: Declaration = Constant(0.0) if latent.q_rank is None else f"{prefix}.q_a_proj.bias"
    stored, sizes = f"{prefix}.kv_a_proj_with_mqa", (latent.q_rank or queries, one.head_dim)
    module = "layers.attention"
    return llama.weights(spec) | {
        f"{module}.down.weight": Concatenate(
            (first, turned(f"{stored}.weight", 1, one.head_dim)), sizes
        ),
        f"{module}.down.bias": Concatenate(
            (bias, turned(f"{stored}.bias", 1, one.head_dim)), sizes
        ),
        f"{module}.q_norm": f"{prefix}.q_a_layernorm.{{kind}}",
        f"{module}.q_up": whole,
        f"{module}.kv_norm": f"{prefix}.kv_a_layernorm.{{kind}}",
        f"{module}.k_up": Transpose(of_heads(0, latent.nope_dim)),
        f"{module}.v_up": of_heads(latent.nope_dim, latent.nope_dim + latent.value_dim),
    }
