"""InternLM 1: Llama with biases on q, k, v and the output projection."""

import msgspec

from jax_engine.model_spec import ModelSpec
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import require_one_of
from jax_engine.models.hf_schemas import LlamaFields, Theta

weights = llama.weights


class RotaryFields(msgspec.Struct, frozen=True):
    """`rotary`; its dynamic type stretches only what is longer than the model's positions."""

    type: str = "origin"
    base: Theta = 10000.0


class Fields(LlamaFields, frozen=True):
    """Llama's fields; `bias` is what Llama calls `attention_bias`."""

    bias: bool = True
    rotary: RotaryFields | None = None


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with these biases."""
    if fields.rotary is not None:
        require_one_of(fields.rotary, "type", ("origin", "dynamic"))
        fields = msgspec.structs.replace(fields, rope_theta=fields.rotary.base)
    return changed(
        llama.specification(fields),
        attention={"qkv_bias": fields.bias, "output_bias": fields.bias},
    )
