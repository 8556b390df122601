"""Gemma 3 (text): Gemma 2 with q/k norms, without caps; layers with a window have another RoPE."""

from typing import ClassVar

import msgspec

from jax_engine.model_spec import HeadNormSpec, ModelSpec, RopeConfig
from jax_engine.models.checkpoints.file_schema import Positive, Size
from jax_engine.models.families import gemma, gemma2, llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import (
    FULL,
    SLIDING,
    require,
    rope_from_hf,
    ropes_by_type,
)
from jax_engine.models.families.qwen3 import head_norms
from jax_engine.models.hf_schemas import Theta
from jax_engine.weights.transforms import Declaration


class Fields(gemma2.Fields, frozen=True):
    """Gemma 2's fields with other defaults, and the RoPE of layers with a window."""

    two_ropes: ClassVar[bool] = True

    attn_logit_softcapping: Positive | None = None
    final_logit_softcapping: Positive | None = None
    rope_theta: Theta = 1000000.0
    rope_local_base_freq: Theta = 10000.0
    sliding_window_pattern: Size = 6


def specification(fields: Fields) -> ModelSpec:
    """Gemma 2's layers; of `sliding_window_pattern` layers the last one sees all."""
    require(fields, attn_logit_softcapping=None)
    layers, period = range(fields.num_hidden_layers), fields.sliding_window_pattern
    default = [SLIDING if (layer + 1) % period else FULL for layer in layers]
    types = fields.layer_types or default
    local = RopeConfig(fields.rope_local_base_freq)
    full, sliding = ropes_by_type(fields) or (rope_from_hf(fields), local)
    return changed(
        gemma2.specification(msgspec.structs.replace(fields, layer_types=types)),
        attention={
            "head_norm": HeadNormSpec(fields.rms_norm_eps),
            "rope": tuple(sliding if one == SLIDING else full for one in types),
        },
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Gemma 2's names, and those of the norms of heads."""
    norms = head_norms("model.layers.{layer}.self_attn")
    return gemma.with_ones(llama.weights(spec) | gemma2.output_norms() | norms)
