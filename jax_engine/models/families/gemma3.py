"""Gemma 3 (text): Gemma 2 without caps, with norms of heads and a second RoPE under the window."""

import msgspec

from jax_engine.file_schema import Positive, Size
from jax_engine.model_spec import HeadNormSpec, ModelSpec
from jax_engine.models.families import gemma, gemma2, llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import FULL, SLIDING, given, rope_from_hf, rope_of
from jax_engine.models.families.qwen3 import head_norms
from jax_engine.models.schemas import RopeFields, Theta
from jax_engine.rope_config import RopeConfig
from jax_engine.weights.transforms import Declaration

ARCHITECTURES = ("Gemma3ForCausalLM", "Gemma3TextModel")


class RopesByType(RopeFields, frozen=True):
    """`rope_parameters` of transformers 5: for each type of layer."""

    full_attention: RopeFields | None = None
    sliding_attention: RopeFields | None = None


class Fields(gemma2.Fields, frozen=True):
    """Gemma 2's fields with other defaults, and the RoPE of layers with a window."""

    attn_logit_softcapping: Positive | None = None
    final_logit_softcapping: Positive | None = None
    rope_theta: Theta = 1000000.0
    rope_local_base_freq: Theta = 10000.0
    rope_parameters: RopesByType | None = None
    sliding_window_pattern: Size = 6


def specification(fields: Fields) -> ModelSpec:
    """Gemma 2's layers; of `sliding_window_pattern` layers the last one sees all."""
    layers, period = range(fields.num_hidden_layers), fields.sliding_window_pattern
    default = [SLIDING if (layer + 1) % period else FULL for layer in layers]
    types = fields.layer_types or default
    full, sliding = ropes_by_type(fields)
    return changed(
        gemma2.specification(msgspec.structs.replace(fields, layer_types=types)),
        attention={
            "head_norm": HeadNormSpec(fields.rms_norm_eps),
            "rope": tuple(sliding if one == SLIDING else full for one in types),
        },
    )


def ropes_by_type(fields: Fields) -> tuple[RopeConfig, RopeConfig]:
    """The rotary embeddings of layers that see all and of those with a window."""
    by_type = fields.rope_parameters
    if by_type is None or by_type.full_attention is None:
        return rope_from_hf(fields), RopeConfig(fields.rope_local_base_freq)
    full, sliding = (given(one) for one in (by_type.full_attention, by_type.sliding_attention))
    return rope_of(full, fields), rope_of(sliding, fields)


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Gemma 2's names, and those of the norms of heads."""
    norms = head_norms("model.layers.{layer}.self_attn")
    return gemma.with_ones(llama.weights(spec) | gemma2.output_norms() | norms)
