"""Qwen 2 MoE: Qwen 2 with experts, and a shared expert whose output has a sigmoid gate."""

import dataclasses

import msgspec

from jax_engine.model_spec import ExpertsSpec, ModelSpec, RouterSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama, qwen2
from jax_engine.models.families.changed import changed
from jax_engine.models.families.experts import expert_weights, shared_weights, with_experts
from jax_engine.models.families.hf_config import FULL, SLIDING
from jax_engine.weights.transforms import Declaration


class Fields(qwen2.Fields, frozen=True):
    """Qwen 2's fields and the experts."""

    num_key_value_heads: Size | None = 16
    qkv_bias: bool = True
    num_experts: Size = 60
    num_experts_per_tok: Size = 4
    moe_intermediate_size: Size = 1408
    shared_expert_intermediate_size: Size = 5632
    norm_topk_prob: bool = False
    decoder_sparse_step: Size = 1
    mlp_only_layers: list[int] = []  # noqa: RUF012  msgspec copies it


def specification(fields: Fields) -> ModelSpec:
    """Qwen 2's layers, with experts in every `decoder_sparse_step`-th one."""
    mlp = llama.mlp_of(fields)
    experts = ExpertsSpec(
        router=router(fields),
        expert=dataclasses.replace(mlp, width=fields.moe_intermediate_size),
        shared=dataclasses.replace(mlp, width=fields.shared_expert_intermediate_size),
        shared_gate=True,
    )
    typed = msgspec.structs.replace(fields, layer_types=layer_types(fields))
    plain = changed(qwen2.specification(typed), attention={"qkv_bias": fields.qkv_bias})
    return with_experts(plain, experts, sparse(fields))


def layer_types(fields: Fields) -> list[str]:
    """By default, every other layer before `max_window_layers` may have the window."""
    layers, last = range(fields.num_hidden_layers), fields.max_window_layers
    return fields.layer_types or [FULL if n % 2 or n >= last else SLIDING for n in layers]


def router(fields: Fields) -> RouterSpec:
    """Scores all experts; the chosen ones are renormalised if the configuration says so."""
    counts = fields.num_experts, fields.num_experts_per_tok
    return RouterSpec(*counts, renormalise=fields.norm_topk_prob)


def sparse(fields: Fields) -> list[bool]:
    """Whether each layer has experts."""
    step, dense = fields.decoder_sparse_step, fields.mlp_only_layers
    layers = range(fields.num_hidden_layers)
    return [layer not in dense and (layer + 1) % step == 0 for layer in layers]


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Qwen 2's names, and those of the experts."""
    return llama.weights(spec) | names(spec)


def names(spec: ModelSpec) -> dict[str, Declaration]:
    """The tensors of experts and of the shared network."""
    mlp, parts = "model.layers.{layer}.mlp", ("gate_proj", "up_proj", "down_proj")
    return (
        expert_weights(spec, f"{mlp}.experts.{{expert}}", parts)
        | shared_weights(f"{mlp}.shared_expert")
        | {
            "layers.experts.router": f"{mlp}.gate.{{kind}}",
            "layers.experts.shared_gate": f"{mlp}.shared_expert_gate.weight",
        }
    )
