"""DeepSeek V2 and V2-Lite: latent attention; experts in groups, behind a few dense layers.

A group of experts is as good as its best one. V2-Lite has no groups, and no latent of queries.
"""

import dataclasses
from collections.abc import Sequence

from jax_engine.errors import ConfigError
from jax_engine.model_spec import ExpertsSpec, ModelSpec, RouterSpec
from jax_engine.models.checkpoints.file_schema import Positive, Size
from jax_engine.models.families import latent, llama
from jax_engine.models.families.experts import expert_weights, shared_weights, with_experts
from jax_engine.models.families.hf_config import FILE, require
from jax_engine.weights.transforms import Declaration

METHODS = ("greedy", "group_limited_greedy")


class Fields(latent.Fields, frozen=True):
    """The sizes of latents and heads, and the experts."""

    n_routed_experts: Size = 64
    num_experts_per_tok: Size = 6
    moe_intermediate_size: Size = 1407
    n_shared_experts: Size | None = 2
    first_k_dense_replace: int = 0
    moe_layer_freq: Size = 1
    scoring_func: str = "softmax"
    topk_method: str = "greedy"
    n_group: Size | None = 1
    topk_group: Size | None = 1
    norm_topk_prob: bool | None = False
    routed_scaling_factor: Positive = 1.0


def specification(fields: Fields) -> ModelSpec:
    """Latent attention; softmax scores, which are not made to sum to one."""
    require(fields, scoring_func="softmax", norm_topk_prob=False)
    if fields.topk_method not in METHODS:
        known = ", ".join(METHODS)
        raise ConfigError(
            f"{FILE}: topk_method {fields.topk_method!r} is not supported; known: {known}."
        )
    in_groups = fields.topk_method == "group_limited_greedy"
    router = RouterSpec(
        fields.n_routed_experts,
        fields.num_experts_per_tok,
        scaling=fields.routed_scaling_factor,
        groups=fields.n_group or 1 if in_groups else 1,
        top_groups=fields.topk_group or 1 if in_groups else 1,
        judged=1,
    )
    return routed(fields, router, sparse_layers(fields))


def sparse_layers(fields: Fields) -> list[bool]:
    """Whether each layer has experts."""
    first, every = fields.first_k_dense_replace, fields.moe_layer_freq
    return [layer >= first and layer % every == 0 for layer in range(fields.num_hidden_layers)]


def routed(fields: Fields, router: RouterSpec, sparse: Sequence[bool]) -> ModelSpec:
    """Latent attention in all layers, experts in some."""
    expert = dataclasses.replace(llama.mlp_of(fields), width=fields.moe_intermediate_size)
    shared = None
    if fields.n_shared_experts:
        shared = dataclasses.replace(expert, width=expert.width * fields.n_shared_experts)
    return with_experts(latent.specification(fields), ExpertsSpec(router, expert, shared), sparse)


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Names of latent attention, and those of the experts."""
    layer, parts = "model.layers.{layer}", ("gate_proj", "up_proj", "down_proj")
    return (
        latent.weights(spec, interleaved=True)
        | expert_weights(spec, f"{layer}.mlp.experts.{{expert}}", parts)
        | shared_weights(f"{layer}.mlp.shared_experts")
        | {"layers.experts.router": f"{layer}.mlp.gate.{{kind}}"}
    )
