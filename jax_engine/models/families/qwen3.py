"""Qwen 3: Llama with a norm of each head's queries and keys."""

from jax_engine.model_spec import HeadNormSpec, ModelSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama, qwen2
from jax_engine.models.families.changed import changed
from jax_engine.weights.transforms import Declaration, Repeat


class Fields(qwen2.Fields, frozen=True):
    """Qwen 2's fields with other defaults."""

    head_dim: Size | None = 128


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with norms of heads."""
    norm = HeadNormSpec(fields.rms_norm_eps)
    return changed(
        llama.specification(fields),
        attention={"head_norm": norm, "window": qwen2.window(fields)},
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names; one vector norms all heads."""
    return llama.weights(spec) | head_norms("model.layers.{layer}.self_attn")


def head_norms(prefix: str) -> dict[str, Declaration]:
    """The norms of queries and keys, if all heads share one vector."""
    return {
        "layers.attention.q_norm": Repeat(f"{prefix}.q_norm.{{kind}}"),
        "layers.attention.k_norm": Repeat(f"{prefix}.k_norm.{{kind}}"),
    }
