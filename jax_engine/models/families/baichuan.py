"""Baichuan 1 and 2: Llama with q, k and v in one tensor, W_pack; ALiBi in the 13B models.

Baichuan 2 divides each row of its head by the row's length (NormHead). The loader does so once.
"""

from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama
from jax_engine.models.families.alibi import press_slopes
from jax_engine.models.families.changed import changed
from jax_engine.models.hf_schemas import LlamaFields
from jax_engine.weights.transforms import Declaration, UnitRows

VOCABULARY_OF_2 = 125696  # no field of config.json tells Baichuan 2 from 1


class Fields(LlamaFields, frozen=True):
    """Llama's fields; the 13B models name their longest context otherwise."""

    max_position_embeddings: Size = 0
    model_max_length: Size = 4096


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers; the 13B models, without `max_position_embeddings`, have ALiBi."""
    if fields.max_position_embeddings:
        return llama.specification(fields)
    return changed(
        llama.specification(fields),
        attention={"rope": None, "alibi_slopes": press_slopes(fields.num_attention_heads)},
        max_context_len=fields.model_max_length,
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names but for W_pack: all of q, then all of k, then all of v."""
    head = "lm_head.{kind}"
    return llama.weights(spec) | {
        "layers.attention.qkv": "model.layers.{layer}.self_attn.W_pack.{kind}",
        "lm_head": UnitRows(head) if spec.vocab_size == VOCABULARY_OF_2 else head,
    }
