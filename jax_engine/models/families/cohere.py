"""Command R (Cohere): attention and MLP in parallel after one layer norm; scaled logits."""

from jax_engine.model_spec import HeadNormSpec, ModelSpec, NormSpec
from jax_engine.models.checkpoints.file_schema import Positive
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.neighbours import qkv_in_halves
from jax_engine.models.hf_schemas import Epsilon, LlamaFields, Theta
from jax_engine.weights.transforms import Declaration, rope_halves_of_norm


class Fields(LlamaFields, frozen=True):
    """Llama's fields and Cohere's own."""

    rope_theta: Theta = 500000.0
    layer_norm_eps: Epsilon = 1e-5
    logit_scale: Positive = 0.0625
    use_qk_norm: bool = False
    tie_word_embeddings: bool | None = True


def specification(fields: Fields) -> ModelSpec:
    """Llama's parts in parallel, with layer norms."""
    norm = NormSpec(fields.layer_norm_eps, "layer")
    head_norm = HeadNormSpec(fields.layer_norm_eps, "layer") if fields.use_qk_norm else None
    return changed(
        llama.specification(fields),
        attention={"head_norm": head_norm},
        layer={"input_norm": norm, "mlp_norm": None, "parallel": True},
        norm=norm,
        logits_factor=fields.logit_scale,
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names; rows of q and k, and of their norms, are reordered to rotate halves."""
    norm = "model.layers.{{layer}}.self_attn.{}_norm.{{kind}}"
    norms: dict[str, Declaration] = {
        f"layers.attention.{name}_norm": rope_halves_of_norm(norm.format(name), spec.head_dim)
        for name in "qk"
    }
    return llama.weights(spec) | qkv_in_halves(spec) | norms
