"""GLM-4.5 and 4.6: dense layers, then experts chosen by sigmoids plus a bias; a shared expert."""

import dataclasses

from jax_engine.model_spec import ExpertsSpec, HeadNormSpec, ModelSpec
from jax_engine.models.checkpoints.file_schema import Positive, Size
from jax_engine.models.families import deepseek_v3, llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.experts import expert_weights, shared_weights, with_experts
from jax_engine.models.families.hf_config import partial_factor
from jax_engine.models.families.qwen3 import head_norms
from jax_engine.models.hf_schemas import Fraction, LlamaFields
from jax_engine.weights.transforms import Declaration


class Fields(LlamaFields, frozen=True):
    """Llama's fields and the experts; `attention_bias` is about q, k and v only."""

    num_key_value_heads: Size | None = 8
    rms_norm_eps: float = 1e-5
    head_dim: Size | None = 128
    partial_rotary_factor: Fraction | None = None
    use_qk_norm: bool = False
    n_routed_experts: Size = 128
    num_experts_per_tok: Size = 8
    moe_intermediate_size: Size = 1408
    n_shared_experts: Size = 1
    first_k_dense_replace: int = 1
    n_group: Size = 1
    topk_group: Size = 1
    norm_topk_prob: bool = True
    routed_scaling_factor: Positive = 1.0


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with half of each head rotated; `first_k_dense_replace` have no experts."""
    norm = HeadNormSpec(fields.rms_norm_eps) if fields.use_qk_norm else None
    plain = changed(
        llama.specification(fields, partial_factor(fields, 0.5)),
        attention={"output_bias": False, "head_norm": norm},
    )
    expert = dataclasses.replace(llama.mlp_of(fields), width=fields.moe_intermediate_size)
    shared = dataclasses.replace(expert, width=expert.width * fields.n_shared_experts)
    layers = range(fields.num_hidden_layers)
    sparse = [layer >= fields.first_k_dense_replace for layer in layers]
    return with_experts(plain, ExpertsSpec(deepseek_v3.router_of(fields), expert, shared), sparse)


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names, and those of the experts and of the norms of heads."""
    layer, parts = "model.layers.{layer}", ("gate_proj", "up_proj", "down_proj")
    return (
        llama.weights(spec)
        | head_norms(f"{layer}.self_attn")
        | expert_weights(spec, f"{layer}.mlp.experts.{{expert}}", parts)
        | shared_weights(f"{layer}.mlp.shared_experts")
        | {
            "layers.experts.router": f"{layer}.mlp.gate.{{kind}}",
            "layers.experts.router.selection_bias": f"{layer}.mlp.gate.e_score_correction_bias",
        }
    )
