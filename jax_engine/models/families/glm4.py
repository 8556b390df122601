"""GLM-4 of 2025 (GLM-4-0414): the GLM-4 of 2024 with norms before and after each part."""

from jax_engine.model_spec import ModelSpec
from jax_engine.models.families import glm
from jax_engine.models.families.changed import changed
from jax_engine.weights.transforms import Declaration

Fields = glm.Fields


def specification(fields: glm.Fields) -> ModelSpec:
    """GLM's layers with norms of each part's output."""
    plain = glm.specification(fields)
    norms = {"attention_output_norm": plain.norm, "mlp_output_norm": plain.norm}
    return changed(plain, layer=norms)


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """GLM's names, and those of the further norms."""
    return glm.weights(spec) | {
        "layers.attention_output_norm": "model.layers.{layer}.post_self_attn_layernorm.{kind}",
        "layers.mlp_output_norm": "model.layers.{layer}.post_mlp_layernorm.{kind}",
    }
