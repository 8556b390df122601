"""InternLM 1: Llama with biases on q, k, v and the output projection."""

from jax_engine.model_spec import ModelSpec
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.schemas import LlamaFields

ARCHITECTURES = ("InternLMForCausalLM",)
weights = llama.weights


class Fields(LlamaFields, frozen=True):
    """Llama's fields; `bias` is what Llama calls `attention_bias`."""

    bias: bool = True


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with these biases."""
    return changed(
        llama.specification(fields),
        attention={"qkv_bias": fields.bias, "output_bias": fields.bias},
    )
