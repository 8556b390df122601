"""dots.llm1: Qwen 3's attention with DeepSeek V3's experts, behind a few dense layers."""

import dataclasses

from jax_engine.model_spec import ExpertsSpec, ModelSpec
from jax_engine.models.checkpoints.file_schema import Positive, Size
from jax_engine.models.families import deepseek_v3, glm4_moe, llama, qwen3
from jax_engine.models.families.changed import changed
from jax_engine.models.families.experts import with_experts
from jax_engine.models.families.hf_config import FULL, SLIDING, windows_of

weights = glm4_moe.weights


class Fields(qwen3.Fields, frozen=True, kw_only=True):
    """Qwen 3's fields with other defaults, and the experts."""

    n_routed_experts: Size
    num_experts_per_tok: Size
    num_key_value_heads: Size | None = 32
    head_dim: Size | None = None
    max_window_layers: int = 62
    moe_intermediate_size: Size = 1408
    n_shared_experts: Size | None = None
    first_k_dense_replace: int = 0
    n_group: Size | None = 1
    topk_group: Size | None = 1
    norm_topk_prob: bool | None = False
    routed_scaling_factor: Positive = 1.0


def specification(fields: Fields) -> ModelSpec:
    """Qwen 3's layers; a window, where there is one, is on those from `max_window_layers` on."""
    layers = range(fields.num_hidden_layers)
    types = fields.layer_types or [
        SLIDING if layer >= fields.max_window_layers else FULL for layer in layers
    ]
    window = windows_of(types, fields.sliding_window, fields.num_hidden_layers)
    plain = changed(qwen3.specification(fields), attention={"window": window})
    expert = dataclasses.replace(llama.mlp_of(fields), width=fields.moe_intermediate_size)
    shared = None
    if fields.n_shared_experts:
        shared = dataclasses.replace(expert, width=expert.width * fields.n_shared_experts)
    experts = ExpertsSpec(deepseek_v3.router_of(fields), expert, shared)
    return with_experts(plain, experts, [layer >= fields.first_k_dense_replace for layer in layers])
