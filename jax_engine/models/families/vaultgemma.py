"""VaultGemma: Gemma 2 without the norms after each part."""

from jax_engine.model_spec import ModelSpec
from jax_engine.models.families import gemma, gemma2, llama
from jax_engine.models.families.changed import changed
from jax_engine.weights.transforms import Declaration

Fields = gemma2.Fields


def specification(fields: gemma2.Fields) -> ModelSpec:
    """Gemma 2's layers with Llama's norms."""
    norms = {"attention_output_norm": None, "mlp_output_norm": None}
    return changed(gemma2.specification(fields), layer=norms)


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Gemma 1's names, but for the norm before the MLP."""
    norm: dict[str, Declaration] = {
        "layers.mlp_norm": "model.layers.{layer}.pre_feedforward_layernorm.{kind}"
    }
    return gemma.with_ones(llama.weights(spec) | norm)
