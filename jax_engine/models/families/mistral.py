"""Mistral: Llama with a sliding window, in all layers or in some."""

from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import windows_of
from jax_engine.models.hf_schemas import LlamaFields

weights = llama.weights


class Fields(LlamaFields, frozen=True):
    """Llama's fields, with Mistral's own defaults."""

    num_key_value_heads: Size | None = 8
    sliding_window: Size | None = 4096
    layer_types: list[str] | None = None


def specification(fields: Fields) -> ModelSpec:
    """A query attends to the last `sliding_window` positions, its own included; null: to all."""
    window = windows_of(fields.layer_types, fields.sliding_window, fields.num_hidden_layers)
    return changed(llama.specification(fields), attention={"window": window})
