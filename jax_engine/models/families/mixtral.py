"""Mixtral: Mistral with experts in each layer."""

from jax_engine.model_spec import ExpertsSpec, ModelSpec, RouterSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama, mistral
from jax_engine.models.families.changed import changed
from jax_engine.models.families.experts import expert_weights
from jax_engine.models.hf_schemas import Epsilon, Theta
from jax_engine.weights.transforms import Declaration


class Fields(mistral.Fields, frozen=True):
    """Mistral's fields and the experts."""

    rms_norm_eps: Epsilon = 1e-5
    rope_theta: Theta = 1000000.0
    sliding_window: Size | None = None
    num_local_experts: Size = 8
    num_experts_per_tok: Size = 2


def specification(fields: Fields) -> ModelSpec:
    """Mistral's layers; the weights of the chosen experts sum to one."""
    plain = mistral.specification(fields)
    router = RouterSpec(fields.num_local_experts, fields.num_experts_per_tok, "chosen_softmax")
    return changed(plain, layer={"mlp": ExpertsSpec(router, llama.mlp_of(fields))})


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Mistral's names, and those of the experts."""
    block = "model.layers.{layer}.block_sparse_moe"
    experts = expert_weights(spec, f"{block}.experts.{{expert}}", ("w1", "w3", "w2"))
    return llama.weights(spec) | experts | {"layers.experts.router": f"{block}.gate.{{kind}}"}
