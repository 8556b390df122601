"""Granite 3: Llama with factors on the embedding, the residual branches, the scores, the logits."""

from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import Positive
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.hf_schemas import LlamaFields

weights = llama.weights


class Fields(LlamaFields, frozen=True):
    """Llama's fields and the factors."""

    embedding_multiplier: Positive = 1.0
    residual_multiplier: Positive = 1.0
    attention_multiplier: Positive = 1.0
    logits_scaling: Positive = 1.0


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with the factors; logits are divided by theirs."""
    return changed(
        llama.specification(fields),
        attention={"scale": fields.attention_multiplier},
        layer={"residual_factor": fields.residual_multiplier},
        embedding_factor=fields.embedding_multiplier,
        scales_inputs=True,
        logits_factor=1 / fields.logits_scaling,
    )
