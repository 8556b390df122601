"""Gemma 2: Gemma 1 with norms also after each part, soft caps, a window on every other layer."""

from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import Positive, Size
from jax_engine.models.families import gemma, llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import FULL, SLIDING, windows_of
from jax_engine.weights.transforms import Declaration


class Fields(gemma.Fields, frozen=True):
    """Gemma's fields, the caps and the windows."""

    num_key_value_heads: Size | None = 4
    query_pre_attn_scalar: Positive = 256
    attn_logit_softcapping: Positive | None = 50.0
    final_logit_softcapping: Positive | None = 30.0
    sliding_window: Size | None = 4096
    layer_types: list[str] | None = None


def specification(fields: Fields) -> ModelSpec:
    """Gemma 1's layers with norms of each part's output; the first layer has a window."""
    plain, count = gemma.specification(fields), fields.num_hidden_layers
    types = fields.layer_types or [FULL if layer % 2 else SLIDING for layer in range(count)]
    return changed(
        plain,
        attention={
            "scale": fields.query_pre_attn_scalar**-0.5,
            "soft_cap": fields.attn_logit_softcapping,
            "window": windows_of(types, fields.sliding_window, count),
        },
        layer={"attention_output_norm": plain.norm, "mlp_output_norm": plain.norm},
        logits_cap=fields.final_logit_softcapping,
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names, and those of the further norms."""
    return gemma.with_ones(llama.weights(spec) | output_norms())


def output_norms() -> dict[str, Declaration]:
    """The norms besides `input_norm`, by the names that Gemma 2 and 3 give them."""
    layer = "model.layers.{layer}"
    return {
        "layers.attention_output_norm": f"{layer}.post_attention_layernorm.{{kind}}",
        "layers.mlp_norm": f"{layer}.pre_feedforward_layernorm.{{kind}}",
        "layers.mlp_output_norm": f"{layer}.post_feedforward_layernorm.{{kind}}",
    }
