"""GLM-4.7-Flash: DeepSeek V3's layers, and a list that says which of them are dense."""

from collections.abc import Sequence

from jax_engine.errors import ConfigError
from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import Positive, Size
from jax_engine.models.families import deepseek_v2, deepseek_v3
from jax_engine.models.families.hf_config import FILE, require

weights = deepseek_v3.weights
DENSE, SPARSE = "dense", "sparse"


class Fields(deepseek_v3.Fields, frozen=True):
    """V3's fields, of which a few have other defaults."""

    rms_norm_eps: float = 1e-5
    q_lora_rank: Size | None = 768
    qk_nope_head_dim: Size = 192
    v_head_dim: Size | None = 256
    n_routed_experts: Size = 64
    num_experts_per_tok: Size = 4
    moe_intermediate_size: Size = 1536
    first_k_dense_replace: int = 1
    n_group: Size | None = 1
    topk_group: Size | None = 1
    routed_scaling_factor: Positive = 1.8
    mlp_layer_types: list[str] | None = None


def specification(fields: Fields) -> ModelSpec:
    """V3's layers; those that `mlp_layer_types` calls sparse have experts."""
    require(fields, scoring_func="sigmoid", topk_method="noaux_tc", rope_interleave=True)
    types, with_experts = fields.mlp_layer_types, deepseek_v2.sparse_layers(fields)
    if types is not None:
        with_experts = sparse(types, fields.num_hidden_layers)
    return deepseek_v2.routed(fields, deepseek_v3.router_of(fields), with_experts)


def sparse(types: Sequence[str], num_layers: int) -> list[bool]:
    """Whether each layer has experts. Raises ConfigError for another type, or too few of them."""
    unknown = [one for one in types if one not in (DENSE, SPARSE)]
    if unknown or len(types) != num_layers:
        raise ConfigError(
            f"{FILE}: mlp_layer_types must be {DENSE!r} or {SPARSE!r} for each of the "
            f"{num_layers} layers, got {len(types)} of {sorted(set(types))}."
        )
    return [one == SPARSE for one in types]
