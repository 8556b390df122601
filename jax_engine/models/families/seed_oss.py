"""Seed-OSS: Llama with biases on q, k and v, and a switch of its own for the output's."""

from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.hf_schemas import LlamaFields

weights = llama.weights


class Fields(LlamaFields, frozen=True):
    """Llama's fields; `attention_bias` is about q, k and v only."""

    num_key_value_heads: Size | None = 8
    head_dim: Size | None = 128
    attention_bias: bool | None = True
    attention_out_bias: bool | None = False


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with these biases."""
    attention = {"output_bias": bool(fields.attention_out_bias)}
    return changed(llama.specification(fields), attention=attention)
