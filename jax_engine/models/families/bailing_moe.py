"""Ling 1 (Bailing MoE): Llama with q, k and v in one tensor, and experts with a shared one.

Some models divide each column of their head by the column's length (`norm_head`). The loader does
so once.
"""

import dataclasses

import msgspec

from jax_engine.model_spec import ExpertsSpec, HeadNormSpec, ModelSpec, RouterSpec
from jax_engine.models.checkpoints.file_schema import Count, Size
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.experts import expert_weights, shared_weights, with_experts
from jax_engine.models.families.hf_config import partial_factor
from jax_engine.models.hf_schemas import Epsilon, Fraction, LlamaFields
from jax_engine.weights.transforms import Declaration, Repeat, UnitColumns


class Fields(LlamaFields, frozen=True, kw_only=True):
    """Llama's fields and the experts; `use_bias` is about the output projection of attention."""

    num_experts: Size
    num_experts_per_tok: Size
    moe_intermediate_size: Size
    num_key_value_heads: Count | None = 0
    rms_norm_eps: Epsilon = 1e-5
    use_qkv_bias: bool | None = False
    use_bias: bool | None = True
    use_qk_norm: bool | None = False
    norm_head: bool | None = False
    partial_rotary_factor: Fraction | None = None
    num_shared_experts: Count | None = 0
    moe_shared_expert_intermediate_size: Size | None = None
    norm_topk_prob: bool | None = True
    first_k_dense_replace: Count = 0


def specification(fields: Fields) -> ModelSpec:
    """Experts chosen by softmax scores."""
    counts = fields.num_experts, fields.num_experts_per_tok
    return routed(fields, RouterSpec(*counts, renormalise=bool(fields.norm_topk_prob)), 1.0)


def routed(fields: Fields, router: RouterSpec, rotated: float) -> ModelSpec:
    """Llama's layers with experts behind `first_k_dense_replace` dense ones.

    Args:
        rotated: the fraction of a head's numbers that RoPE rotates, if the file has none.
    """
    kv_heads = fields.num_key_value_heads or None
    as_llama = msgspec.structs.replace(fields, num_key_value_heads=kv_heads)
    norm = HeadNormSpec(fields.rms_norm_eps) if fields.use_qk_norm else None
    plain = changed(
        llama.specification(as_llama, partial_factor(fields, rotated)),
        attention={
            "qkv_bias": bool(fields.use_qkv_bias),
            "output_bias": bool(fields.use_bias),
            "head_norm": norm,
        },
        unit_columns=bool(fields.norm_head),
    )
    expert = dataclasses.replace(llama.mlp_of(fields), width=fields.moe_intermediate_size)
    shared = None
    if fields.num_shared_experts:
        each = fields.moe_shared_expert_intermediate_size or expert.width
        shared = dataclasses.replace(expert, width=each * fields.num_shared_experts)
    layers = range(fields.num_hidden_layers)
    sparse = [layer >= fields.first_k_dense_replace for layer in layers]
    return with_experts(plain, ExpertsSpec(router, expert, shared), sparse)


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names, but for the embedding, attention and the experts."""
    layer, parts = "model.layers.{layer}", ("gate_proj", "up_proj", "down_proj")
    attention, head = f"{layer}.attention", "lm_head.{kind}"
    return (
        llama.weights(spec)
        | expert_weights(spec, f"{layer}.mlp.experts.{{expert}}", parts)
        | shared_weights(f"{layer}.mlp.shared_experts")
        | {
            "embed": "model.word_embeddings.{kind}",
            "layers.attention.qkv": f"{attention}.query_key_value.{{kind}}",
            "layers.attention.o": f"{attention}.dense.{{kind}}",
            "layers.attention.q_norm": Repeat(f"{attention}.query_layernorm.{{kind}}"),
            "layers.attention.k_norm": Repeat(f"{attention}.key_layernorm.{{kind}}"),
            "layers.experts.router": f"{layer}.mlp.gate.{{kind}}",
            "lm_head": UnitColumns(head) if spec.unit_columns else head,
        }
    )
