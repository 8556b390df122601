"""MiniCPM 1 and 2: Llama with factors on the embedding, the residual branches and the logits."""

from typing import Any

from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import Positive
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import require
from jax_engine.models.hf_schemas import LlamaFields

weights = llama.weights


class Fields(LlamaFields, frozen=True):
    """Llama's fields and the numbers that the factors follow from."""

    scale_emb: Positive = 1.0
    scale_depth: Positive = 1.0
    dim_model_base: Positive = 1.0
    tie_word_embeddings: bool | None = True
    num_experts: int = 0
    sparse_config: dict[str, Any] | None = None


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with the factors; experts and sparse attention are refused."""
    require(fields, num_experts=0, sparse_config=None)
    return changed(
        llama.specification(fields),
        layer={"residual_factor": fields.scale_depth / fields.num_hidden_layers**0.5},
        embedding_factor=fields.scale_emb,
        logits_factor=fields.dim_model_base / fields.hidden_size,
    )
