"""Command R7B (Cohere 2): Cohere with a window on three of four layers; the fourth lacks RoPE."""

from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import cohere
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import FULL, SLIDING, rope_from_hf, windows_of
from jax_engine.models.hf_schemas import Theta

weights = cohere.weights


class Fields(cohere.Fields, frozen=True):
    """Cohere's fields and the windows."""

    rope_theta: Theta = 10000.0
    sliding_window: Size | None = 4096
    sliding_window_pattern: Size | None = 4
    layer_types: list[str] | None = None


def specification(fields: Fields) -> ModelSpec:
    """Cohere's layers with windows."""
    layers, period = range(fields.num_hidden_layers), fields.sliding_window_pattern or 1
    types = fields.layer_types or [SLIDING if (n + 1) % period else FULL for n in layers]
    rope = rope_from_hf(fields)
    return changed(
        cohere.specification(fields),
        attention={
            "window": windows_of(types, fields.sliding_window, fields.num_hidden_layers),
            "rope": tuple(rope if one == SLIDING else None for one in types),
        },
    )
