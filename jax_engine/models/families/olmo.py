"""OLMo 1: Llama with layer norms that have neither weight nor bias, and clipped q, k and v."""

from jax_engine.model_spec import ModelSpec, NormSpec
from jax_engine.models.checkpoints.file_schema import Positive
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.hf_schemas import LlamaFields
from jax_engine.weights.transforms import Constant, Declaration


class Fields(LlamaFields, frozen=True):
    """Llama's fields, and the bound of queries, keys and values."""

    clip_qkv: Positive | None = None


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with other norms."""
    norm = NormSpec(1e-5, "layer")
    return changed(
        llama.specification(fields),
        attention={"clip": fields.clip_qkv},
        layer={"input_norm": norm, "mlp_norm": norm},
        norm=norm,
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names; the norms' scale is one."""
    ones = dict.fromkeys(("layers.input_norm", "layers.mlp_norm", "norm"), Constant(1.0))
    return llama.weights(spec) | ones
