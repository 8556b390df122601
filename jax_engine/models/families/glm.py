"""GLM-4 of 2024: Llama with RoPE on half of each head, in pairs of neighbouring numbers."""

from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import partial_factor
from jax_engine.models.families.neighbours import qkv_in_halves
from jax_engine.models.hf_schemas import Epsilon, Fraction, LlamaFields
from jax_engine.weights.transforms import Declaration


class Fields(LlamaFields, frozen=True):
    """Llama's fields and the rotated part; `attention_bias` is about q, k and v only."""

    num_key_value_heads: Size | None = 2
    head_dim: Size | None = 128
    rms_norm_eps: Epsilon = 1.5625e-07
    attention_bias: bool | None = True
    partial_rotary_factor: Fraction | None = None


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with partial rotation."""
    plain = llama.specification(fields, partial_factor(fields, 0.5))
    return changed(plain, attention={"output_bias": False})


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names; gate and up are one tensor; rows of q and k are reordered."""
    return (
        llama.weights(spec)
        | qkv_in_halves(spec)
        | {
            "layers.mlp.gate_up": "model.layers.{layer}.mlp.gate_up_proj.{kind}",
        }
    )
