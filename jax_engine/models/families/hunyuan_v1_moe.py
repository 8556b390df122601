"""Hunyuan MoE: Hunyuan dense with experts and a shared one in each layer."""

import dataclasses

from jax_engine.errors import ConfigError
from jax_engine.model_spec import ExpertsSpec, ModelSpec, RouterSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import hunyuan_v1_dense, llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.experts import expert_weights, shared_weights
from jax_engine.models.families.hf_config import FILE
from jax_engine.weights.transforms import Declaration


class Fields(hunyuan_v1_dense.Fields, frozen=True):
    """The dense model's fields and the experts; a list has a number for each layer."""

    num_experts: Size | list[Size] = 1
    moe_topk: Size | list[Size] = 1
    moe_intermediate_size: Size | list[Size] | None = None
    num_shared_expert: Size | list[Size] = 1


def specification(fields: Fields) -> ModelSpec:
    """The dense model's attention; the weights of the chosen experts sum to one."""
    counts = of_all_layers(fields, "num_experts"), of_all_layers(fields, "moe_topk")
    network = llama.mlp_of(fields)
    width = of_all_layers(fields, "moe_intermediate_size") or network.width
    shared = network.width * (of_all_layers(fields, "num_shared_expert") or 1)
    experts = ExpertsSpec(
        RouterSpec(counts[0] or 1, counts[1] or 1, "chosen_softmax"),
        dataclasses.replace(network, width=width),
        dataclasses.replace(network, width=shared),
    )
    return changed(hunyuan_v1_dense.specification(fields), layer={"mlp": experts})


def of_all_layers(fields: Fields, name: str) -> int | None:
    """A number that all layers share. Raises ConfigError if a list has different ones."""
    found: int | list[int] | None = getattr(fields, name)
    if not isinstance(found, list):
        return found
    if len(set(found)) != 1:
        raise ConfigError(
            f"{FILE}: {name} {found!r} is not supported for this architecture; known: one number "
            "for all layers."
        )
    return found[0]


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """The dense model's names, and those of the experts."""
    mlp, parts = "model.layers.{layer}.mlp", ("gate_proj", "up_proj", "down_proj")
    return (
        hunyuan_v1_dense.weights(spec)
        | expert_weights(spec, f"{mlp}.experts.{{expert}}", parts)
        | shared_weights(f"{mlp}.shared_mlp")
        | {"layers.experts.router": f"{mlp}.gate.wg.{{kind}}"}
    )
