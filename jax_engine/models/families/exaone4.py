"""EXAONE 4: norms after each part, and of q and k; layers that see all positions lack RoPE."""

from typing import Annotated

from msgspec import Meta

from jax_engine.model_spec import HeadNormSpec, ModelSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama, olmo2
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import FULL, SLIDING, rope_from_hf, windows_of
from jax_engine.models.families.qwen3 import head_norms
from jax_engine.models.hf_schemas import Epsilon, LlamaFields
from jax_engine.weights.transforms import Declaration

Word = Annotated[str, Meta(pattern="^[LG]+$")]
Period = Annotated[int, Meta(ge=0)]


class Fields(LlamaFields, frozen=True):
    """Llama's fields and the windows; without a window, all layers rotate."""

    num_key_value_heads: Size | None = 32
    rms_norm_eps: Epsilon = 1e-5
    sliding_window: Size | None = 4096
    sliding_window_pattern: Word | Period | None = 4
    layer_types: list[str] | None = None


def specification(fields: Fields) -> ModelSpec:
    """Llama's parts with OLMo 2's norms after them, and Qwen 3's norms of heads."""
    norm = HeadNormSpec(fields.rms_norm_eps)
    plain = olmo2.behind(llama.specification(fields))
    if fields.sliding_window is None:
        return changed(plain, attention={"head_norm": norm})
    types, rope = layer_types(fields), rope_from_hf(fields)
    return changed(
        plain,
        attention={
            "head_norm": norm,
            "window": windows_of(types, fields.sliding_window, fields.num_hidden_layers),
            "rope": tuple(rope if one == SLIDING else None for one in types),
        },
    )


def layer_types(fields: Fields) -> list[str]:
    """The pattern is a number, or a word such as LLLG, with which the last layer sees all."""
    layers, pattern = range(fields.num_hidden_layers), fields.sliding_window_pattern
    if fields.layer_types is not None:
        return fields.layer_types
    if isinstance(pattern, str):
        local = [pattern[n % len(pattern)] == "L" for n in layers[:-1]]
        return [SLIDING if one else FULL for one in (*local, False)]
    return [SLIDING if (n + 1) % (pattern or 1) else FULL for n in layers]


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """OLMo 2's names; one vector norms all heads."""
    return olmo2.weights(spec) | head_norms("model.layers.{layer}.self_attn")
