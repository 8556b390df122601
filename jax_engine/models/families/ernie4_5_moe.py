"""ERNIE 4.5 MoE: ERNIE 4.5 with experts chosen by softmax scores plus a bias; shared experts."""

import dataclasses

from jax_engine.model_spec import ExpertsSpec, ModelSpec, RouterSpec
from jax_engine.models.checkpoints.file_schema import Count, Size
from jax_engine.models.families import ernie4_5, llama
from jax_engine.models.families.experts import expert_weights, shared_weights, with_experts
from jax_engine.models.families.hf_config import require
from jax_engine.weights.transforms import Declaration, OneRow


class Fields(ernie4_5.Fields, frozen=True):
    """ERNIE's fields and the experts; `moe_layer_end_index` -1 is the last layer."""

    num_key_value_heads: Size | None = 4
    head_dim: Size | None = None
    moe_intermediate_size: Size = 1536
    moe_k: Size = 6
    moe_num_experts: Size = 64
    moe_num_shared_experts: Count = 2
    moe_layer_start_index: Count = 1
    moe_layer_end_index: int = -1
    moe_layer_interval: Size = 1
    moe_norm_min: float = 1e-12


def specification(fields: Fields) -> ModelSpec:
    """ERNIE's layers; the weights of the chosen experts sum to one."""
    require(fields, use_bias=False, moe_norm_min=1e-12)
    router = RouterSpec(fields.moe_num_experts, fields.moe_k, renormalise=True, selection_bias=True)
    expert = dataclasses.replace(llama.mlp_of(fields), width=fields.moe_intermediate_size)
    shared = None
    if fields.moe_num_shared_experts:
        shared = dataclasses.replace(expert, width=expert.width * fields.moe_num_shared_experts)
    experts = ExpertsSpec(router, expert, shared)
    return with_experts(ernie4_5.specification(fields), experts, sparse_layers(fields))


def sparse_layers(fields: Fields) -> list[bool]:
    """Whether each layer has experts."""
    count, every = fields.num_hidden_layers, fields.moe_layer_interval
    last = count - 1 if fields.moe_layer_end_index == -1 else fields.moe_layer_end_index
    between = range(fields.moe_layer_start_index, last + 1)
    return [layer in between and (layer + 1) % every == 0 for layer in range(count)]


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """ERNIE's names, and those of the experts; the bias is a matrix of one row."""
    mlp, parts = "model.layers.{layer}.mlp", ("gate_proj", "up_proj", "down_proj")
    return (
        ernie4_5.weights(spec)
        | expert_weights(spec, f"{mlp}.experts.{{expert}}", parts)
        | shared_weights(f"{mlp}.shared_experts")
        | {
            "layers.experts.router": f"{mlp}.gate.{{kind}}",
            "layers.experts.router.selection_bias": OneRow(
                f"{mlp}.moe_statics.e_score_correction_bias"
            ),
        }
    )
