"""DeepSeek V3 and R1: V2 with sigmoid scores, a bias that only selects, and groups by two experts.

The layers for multi-token prediction that a checkpoint has behind the others are not used.
"""

from typing import Protocol

from jax_engine.model_spec import ModelSpec, RouterSpec
from jax_engine.models.checkpoints.file_schema import Positive, Size
from jax_engine.models.families import deepseek_v2
from jax_engine.models.families.hf_config import require
from jax_engine.weights.transforms import Declaration


class Fields(deepseek_v2.Fields, frozen=True):
    """V2's fields, of which a few have other defaults."""

    n_routed_experts: Size = 256
    num_experts_per_tok: Size = 8
    moe_intermediate_size: Size = 2048
    n_shared_experts: Size | None = 1
    first_k_dense_replace: int = 3
    scoring_func: str = "sigmoid"
    topk_method: str = "noaux_tc"
    n_group: Size | None = 8
    topk_group: Size | None = 4
    norm_topk_prob: bool | None = True
    routed_scaling_factor: Positive = 2.5
    rope_interleave: bool | None = True


def specification(fields: Fields) -> ModelSpec:
    """V2's layers with another router."""
    require(fields, scoring_func="sigmoid", topk_method="noaux_tc", rope_interleave=True)
    return deepseek_v2.routed(fields, router_of(fields), deepseek_v2.sparse_layers(fields))


class RouterFields(Protocol):
    """What the router is made of."""

    @property
    def n_routed_experts(self) -> int: ...
    @property
    def num_experts_per_tok(self) -> int: ...
    @property
    def norm_topk_prob(self) -> bool | None: ...
    @property
    def routed_scaling_factor(self) -> float: ...
    @property
    def n_group(self) -> int | None: ...
    @property
    def topk_group(self) -> int | None: ...


def router_of(fields: RouterFields) -> RouterSpec:
    """Sigmoid scores; a group is as good as its two best experts."""
    return RouterSpec(
        fields.n_routed_experts,
        fields.num_experts_per_tok,
        "sigmoid",
        renormalise=bool(fields.norm_topk_prob),
        scaling=fields.routed_scaling_factor,
        selection_bias=True,
        groups=fields.n_group or 1,
        top_groups=fields.topk_group or 1,
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """V2's names, and that of the bias."""
    bias = "model.layers.{layer}.mlp.gate.e_score_correction_bias"
    return deepseek_v2.weights(spec) | {"layers.experts.router.selection_bias": bias}
