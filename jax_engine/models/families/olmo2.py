"""OLMo 2: norms after attention and MLP instead of before, and norms over all heads of q and k."""

from jax_engine.model_spec import HeadNormSpec, ModelSpec
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.hf_schemas import LlamaFields
from jax_engine.weights.transforms import Declaration, Flat


class Fields(LlamaFields, frozen=True):
    """Llama's fields with another default."""

    rms_norm_eps: float = 1e-5


def specification(fields: Fields) -> ModelSpec:
    """Llama's parts, with other norms."""
    norm = HeadNormSpec(fields.rms_norm_eps, whole=True)
    return changed(behind(llama.specification(fields)), attention={"head_norm": norm})


def behind(spec: ModelSpec) -> ModelSpec:
    """The same layers with norms behind: x + norm(attention(x)), then x + norm(mlp(x))."""
    norms = {"attention_output_norm": spec.norm, "mlp_output_norm": spec.norm}
    return changed(spec, layer={"input_norm": None, "mlp_norm": None} | norms)


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names, with OLMo's for the norms."""
    layer = "model.layers.{layer}"
    return (
        llama.weights(spec)
        | head_norms()
        | {
            "layers.attention_output_norm": f"{layer}.post_attention_layernorm.{{kind}}",
            "layers.mlp_output_norm": f"{layer}.post_feedforward_layernorm.{{kind}}",
        }
    )


def head_norms() -> dict[str, Declaration]:
    """The norms of queries and keys, whose heads are stored as one vector."""
    attention = "model.layers.{layer}.self_attn"
    return {
        "layers.attention.q_norm": Flat(f"{attention}.q_norm.{{kind}}"),
        "layers.attention.k_norm": Flat(f"{attention}.k_norm.{{kind}}"),
    }
