"""Granite 3 MoE: Granite 3 with experts; some models also have a shared expert."""

import dataclasses

from jax_engine.model_spec import ExpertsSpec, ModelSpec, RouterSpec
from jax_engine.models.checkpoints.file_schema import Count, Size
from jax_engine.models.families import granite, llama
from jax_engine.models.families.changed import changed
from jax_engine.weights.transforms import Declaration


class Fields(granite.Fields, frozen=True):
    """Granite's fields and the experts; `shared_intermediate_size` 0 is no shared network."""

    num_local_experts: Size = 8
    num_experts_per_tok: Size = 2
    shared_intermediate_size: Count = 0


def specification(fields: Fields) -> ModelSpec:
    """Granite's layers; the weights of the chosen experts sum to one."""
    counts = fields.num_local_experts, fields.num_experts_per_tok
    mlp, width = llama.mlp_of(fields), fields.shared_intermediate_size
    shared = dataclasses.replace(mlp, width=width) if width > 0 else None
    experts = ExpertsSpec(RouterSpec(*counts, "chosen_softmax"), mlp, shared)
    return changed(granite.specification(fields), layer={"mlp": experts})


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Granite's names, and those of the experts: gate, then up, as they are computed."""
    block, shared = "model.layers.{layer}.block_sparse_moe", "model.layers.{layer}.shared_mlp"
    return llama.weights(spec) | {
        "layers.experts.router": f"{block}.router.layer.{{kind}}",
        "layers.experts.gate_up": f"{block}.input_linear.{{kind}}",
        "layers.experts.down": f"{block}.output_linear.{{kind}}",
        "layers.experts.shared.gate_up": f"{shared}.input_linear.{{kind}}",
        "layers.experts.shared.down": f"{shared}.output_linear.{{kind}}",
    }
