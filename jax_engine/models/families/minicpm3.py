"""MiniCPM 3: latent attention, with MiniCPM's factors, and RoPE in halves."""

import functools

from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import Positive, Size
from jax_engine.models.families import latent
from jax_engine.models.families.changed import changed

weights = functools.partial(latent.weights, interleaved=False)


class Fields(latent.Fields, frozen=True):
    """The sizes of latents and heads, and the numbers that the factors follow from."""

    rms_norm_eps: float = 1e-5
    kv_lora_rank: Size = 256
    q_lora_rank: Size | None = 768
    qk_nope_head_dim: Size = 64
    qk_rope_head_dim: Size = 32
    v_head_dim: Size | None = None
    scale_emb: Positive = 12.0
    scale_depth: Positive | None = 1.4
    dim_model_base: Positive | None = 256.0
    tie_word_embeddings: bool | None = True


def specification(fields: Fields) -> ModelSpec:
    """Equal layers with the factors."""
    depth, base = fields.scale_depth, fields.dim_model_base
    return changed(
        latent.specification(fields),
        layer={"residual_factor": depth / fields.num_hidden_layers**0.5 if depth else 1.0},
        embedding_factor=fields.scale_emb,
        logits_factor=base / fields.hidden_size if base else 1.0,
    )
