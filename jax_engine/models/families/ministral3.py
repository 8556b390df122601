"""Ministral 3: Mistral with YaRN and with queries that grow with their position."""

from typing import Annotated, ClassVar

from msgspec import Meta

from jax_engine.errors import ConfigError
from jax_engine.model_spec import ModelSpec, QueryGrowth
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama, mistral
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import FILE
from jax_engine.models.hf_schemas import Epsilon, RopeFields

weights = llama.weights


class GrowingRope(RopeFields, frozen=True):
    """`rope_parameters` with the rule of growth."""

    llama_4_scaling_beta: Annotated[float, Meta(ge=0, le=1e6)] | None = None


class Fields(mistral.Fields, frozen=True):
    """Mistral's fields with other rotary ones."""

    rope_keys: ClassVar[tuple[str, ...]] = ("llama_4_scaling_beta",)
    head_dim: Size | None = 128
    rms_norm_eps: Epsilon = 1e-5
    rope_parameters: GrowingRope | None = None
    sliding_window: int | None = None


def specification(fields: Fields) -> ModelSpec:
    """Mistral's layers with the growth."""
    plain = mistral.specification(fields)
    rope = fields.rope_parameters
    if rope is None:
        raise ConfigError(f"{FILE}: rope_parameters is missing; Ministral 3 stretches its RoPE.")
    if rope.llama_4_scaling_beta is None:
        return plain
    length = rope.original_max_position_embeddings or fields.max_position_embeddings
    return changed(
        plain, attention={"query_growth": QueryGrowth(rope.llama_4_scaling_beta, length)}
    )
