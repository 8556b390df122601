"""SmolLM 3: Llama in which every fourth layer has no RoPE (NoPE)."""

from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import FULL, SLIDING, rope_from_hf, windows_of
from jax_engine.models.hf_schemas import LlamaFields

weights = llama.weights


class Fields(LlamaFields, frozen=True):
    """Llama's fields; `no_rope_layers` has a 1 for each layer that rotates."""

    num_key_value_heads: Size | None = 4
    rope_theta: float = 2000000.0
    tie_word_embeddings: bool | None = True
    no_rope_layers: list[int] | None = None
    no_rope_layer_interval: Size = 4
    use_sliding_window: bool | None = False
    sliding_window: Size | None = None
    layer_types: list[str] | None = None


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers, some without rotation; a window, where there is one, on those by default."""
    layers = range(fields.num_hidden_layers)
    default = [int((layer + 1) % fields.no_rope_layer_interval != 0) for layer in layers]
    rope = rope_from_hf(fields)
    turned = fields.no_rope_layers or default
    types = fields.layer_types or [FULL if turns else SLIDING for turns in turned]
    window = fields.sliding_window if fields.use_sliding_window else None
    return changed(
        llama.specification(fields),
        attention={
            "rope": tuple(rope if turns else None for turns in turned),
            "window": windows_of(types, window, fields.num_hidden_layers),
        },
    )
