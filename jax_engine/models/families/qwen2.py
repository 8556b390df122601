"""Qwen 2 and 2.5: Llama with biases on q, k and v, but not on the output projection."""

from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import FULL, SLIDING, windows_of
from jax_engine.models.hf_schemas import LlamaFields

weights = llama.weights


class Fields(LlamaFields, frozen=True):
    """Llama's fields, and the window that layers from `max_window_layers` on may have."""

    num_key_value_heads: Size | None = 32
    use_sliding_window: bool | None = False
    sliding_window: int | None = 4096
    max_window_layers: int = 28
    layer_types: list[str] | None = None


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with these biases, and with windows."""
    return changed(
        llama.specification(fields),
        attention={"qkv_bias": True, "output_bias": False, "window": window(fields)},
    )


def window(fields: Fields) -> int | tuple[int | None, ...] | None:
    """The window of each layer, from `layer_types` or else from `max_window_layers` on."""
    if not fields.use_sliding_window:
        return None
    layers = range(fields.num_hidden_layers)
    default = [SLIDING if layer >= fields.max_window_layers else FULL for layer in layers]
    types = fields.layer_types or default
    return windows_of(types, fields.sliding_window, fields.num_hidden_layers)
