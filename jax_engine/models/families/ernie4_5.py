"""ERNIE 4.5: Llama with RoPE in pairs of neighbouring numbers; one switch for all biases."""

import msgspec

from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama
from jax_engine.models.families.neighbours import qkv_in_halves
from jax_engine.models.hf_schemas import Epsilon, LlamaFields, Theta
from jax_engine.weights.transforms import Declaration


class Fields(LlamaFields, frozen=True):
    """Llama's fields with other defaults; `use_bias` stands for both of Llama's."""

    num_key_value_heads: Size | None = 2
    head_dim: Size | None = 128
    rms_norm_eps: Epsilon = 1e-5
    rope_theta: Theta = 500000.0
    tie_word_embeddings: bool | None = True
    use_bias: bool | None = False


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers."""
    bias = bool(fields.use_bias)
    return llama.specification(msgspec.structs.replace(fields, attention_bias=bias, mlp_bias=bias))


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names; rows of q and k are reordered."""
    return llama.weights(spec) | qkv_in_halves(spec)
