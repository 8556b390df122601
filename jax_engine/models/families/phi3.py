"""Phi-3 and Phi-4: Llama with fused projections, LongRoPE and, in Phi-4-mini, partial RoPE."""

from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import partial_factor
from jax_engine.models.hf_schemas import Epsilon, Fraction, LlamaFields
from jax_engine.weights.transforms import Declaration


class Fields(LlamaFields, frozen=True):
    """Llama's fields, a window, and how much of a head is rotated."""

    rms_norm_eps: Epsilon = 1e-5
    original_max_position_embeddings: Size | None = 4096
    sliding_window: Size | None = None
    partial_rotary_factor: Fraction | None = None


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers, all with the window."""
    plain = llama.specification(fields, partial_factor(fields))
    return changed(plain, attention={"window": fields.sliding_window})


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names, but for the two fused products, which are stored as they are computed."""
    return llama.weights(spec) | {
        "layers.attention.qkv": "model.layers.{layer}.self_attn.qkv_proj.{kind}",
        "layers.mlp.gate_up": "model.layers.{layer}.mlp.gate_up_proj.{kind}",
    }
