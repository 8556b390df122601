"""Qwen 3 MoE: Qwen 3 with experts, none of them shared."""

import dataclasses

from jax_engine.model_spec import ExpertsSpec, ModelSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama, qwen2_moe, qwen3
from jax_engine.models.families.changed import changed
from jax_engine.models.families.experts import with_experts
from jax_engine.weights.transforms import Declaration


class Fields(qwen2_moe.Fields, qwen3.Fields, frozen=True):
    """The fields of Qwen 2 with experts; transformers 5 gives `num_experts` Mixtral's name."""

    num_key_value_heads: Size | None = 4
    head_dim: Size | None = 128
    num_local_experts: Size | None = None
    num_experts: Size = 128
    num_experts_per_tok: Size = 8
    moe_intermediate_size: Size = 768


def specification(fields: Fields) -> ModelSpec:
    """Qwen 3's layers, with experts in most; the window, where there is one, is on all."""
    router = dataclasses.replace(
        qwen2_moe.router(fields), num_experts=fields.num_local_experts or fields.num_experts
    )
    mlp = dataclasses.replace(llama.mlp_of(fields), width=fields.moe_intermediate_size)
    experts = ExpertsSpec(router, mlp)
    window = fields.sliding_window if fields.use_sliding_window else None
    plain = changed(qwen3.specification(fields), attention={"window": window})
    return with_experts(plain, experts, qwen2_moe.sparse(fields))


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Qwen 3's names, and those of the experts."""
    return qwen3.weights(spec) | qwen2_moe.names(spec)
