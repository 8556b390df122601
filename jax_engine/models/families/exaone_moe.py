"""K-EXAONE: EXAONE 4's attention, norms before each part, and DeepSeek V3's experts."""

import dataclasses

from jax_engine.model_spec import ExpertsSpec, ModelSpec
from jax_engine.models.checkpoints.file_schema import Count, Positive, Size
from jax_engine.models.families import deepseek_v3, exaone4, glm4_moe, glm4_moe_lite, llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.experts import with_experts
from jax_engine.weights.transforms import Declaration


class Fields(exaone4.Fields, frozen=True):
    """EXAONE 4's fields and the experts."""

    num_experts: Size = 64
    num_experts_per_tok: Size = 8
    moe_intermediate_size: Size = 1024
    num_shared_experts: Size = 1
    first_k_dense_replace: Count = 1
    mlp_layer_types: list[str] | None = None
    n_group: Size | None = 1
    topk_group: Size | None = 1
    norm_topk_prob: bool | None = True
    routed_scaling_factor: Positive = 2.5

    @property
    def n_routed_experts(self) -> int:
        """DeepSeek's name."""
        return self.num_experts


def specification(fields: Fields) -> ModelSpec:
    """Llama's places of norms; those that `mlp_layer_types` calls sparse have experts."""
    plain = exaone4.specification(fields)
    norms = {"attention_output_norm": None, "mlp_output_norm": None}
    plain = changed(plain, layer=norms | {"input_norm": plain.norm, "mlp_norm": plain.norm})
    expert = dataclasses.replace(llama.mlp_of(fields), width=fields.moe_intermediate_size)
    shared = dataclasses.replace(expert, width=expert.width * fields.num_shared_experts)
    experts = ExpertsSpec(deepseek_v3.router_of(fields), expert, shared)
    count, types = fields.num_hidden_layers, fields.mlp_layer_types
    sparse = [layer >= fields.first_k_dense_replace for layer in range(count)]
    if types is not None:
        sparse = glm4_moe_lite.sparse(types, count)
    return with_experts(plain, experts, sparse)


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """GLM-4.5's names, but for that of the bias."""
    bias = "model.layers.{layer}.mlp.e_score_correction_bias"
    return glm4_moe.weights(spec) | {"layers.experts.router.selection_bias": bias}
