"""OLMo 3: OLMo 2 with a window on three of four layers; only the fourth stretches its RoPE."""

from typing import ClassVar

from jax_engine.model_spec import ModelSpec, RopeConfig
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import olmo2
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import (
    FULL,
    SLIDING,
    rope_from_hf,
    ropes_by_type,
    windows_of,
)
from jax_engine.models.hf_schemas import Theta

PERIOD = 4
weights = olmo2.weights


class Fields(olmo2.Fields, frozen=True):
    """OLMo 2's fields and the windows."""

    two_ropes: ClassVar[bool] = True

    rope_theta: Theta = 500000.0
    sliding_window: Size | None = 4096
    layer_types: list[str] | None = None


def specification(fields: Fields) -> ModelSpec:
    """OLMo 2's layers with windows and two rotary embeddings."""
    layers = range(fields.num_hidden_layers)
    types = fields.layer_types or [SLIDING if (n + 1) % PERIOD else FULL for n in layers]
    rope = rope_from_hf(fields)
    full, sliding = ropes_by_type(fields) or (rope, RopeConfig(rope.theta))
    return changed(
        olmo2.specification(fields),
        attention={
            "window": windows_of(types, fields.sliding_window, fields.num_hidden_layers),
            "rope": tuple(sliding if one == SLIDING else full for one in types),
        },
    )
