"""Helium 1: Llama with RoPE in pairs of neighbouring numbers."""

from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import ernie4_5, llama
from jax_engine.models.families.changed import changed
from jax_engine.models.hf_schemas import Epsilon, LlamaFields, Theta

weights = ernie4_5.weights


class Fields(LlamaFields, frozen=True):
    """Llama's fields with other defaults; `attention_bias` is about q, k and v only."""

    num_key_value_heads: Size | None = 20
    head_dim: Size | None = 128
    rms_norm_eps: Epsilon = 1e-8
    rope_theta: Theta = 100000.0


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers."""
    return changed(llama.specification(fields), attention={"output_bias": False})
