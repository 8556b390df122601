"""Ling 2 (Bailing MoE V2): Ling 1 with q/k norms, partial RoPE, and DeepSeek V3's router."""

from jax_engine.model_spec import ModelSpec, RouterSpec
from jax_engine.models.checkpoints.file_schema import Positive, Size
from jax_engine.models.families import bailing_moe
from jax_engine.models.families.hf_config import require
from jax_engine.weights.transforms import Declaration


class Fields(bailing_moe.Fields, frozen=True):
    """Ling 1's fields, of which a few have other defaults, and the groups of experts."""

    use_qk_norm: bool | None = True
    n_group: Size | None = 8
    topk_group: Size | None = 4
    routed_scaling_factor: Positive = 2.5
    score_function: str | None = "sigmoid"
    moe_router_enable_expert_bias: bool | None = True


def specification(fields: Fields) -> ModelSpec:
    """Sigmoid scores; a single chosen expert counts as much as its score."""
    require(fields, score_function="sigmoid")
    several = fields.num_experts_per_tok > 1
    router = RouterSpec(
        fields.num_experts,
        fields.num_experts_per_tok,
        "sigmoid",
        renormalise=bool(fields.norm_topk_prob) and several,
        scaling=fields.routed_scaling_factor,
        selection_bias=bool(fields.moe_router_enable_expert_bias),
        groups=fields.n_group or 1,
        top_groups=fields.topk_group or 1,
    )
    return bailing_moe.routed(fields, router, 0.5)


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Ling 1's names, and that of the bias."""
    bias = "model.layers.{layer}.mlp.gate.expert_bias"
    return bailing_moe.weights(spec) | {"layers.experts.router.selection_bias": bias}
