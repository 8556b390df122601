"""Gemma 1 to 3: llama.cpp stores norms plus one, which Hugging Face's layout lacks."""

from typing import Any

from jax_engine.models.gguf.architecture import Architecture, Header, Undo
from jax_engine.models.gguf.rope import shortest
from jax_engine.weights.transforms import AddOne

NORMS: dict[str, Undo] = {"norm": lambda spec, stored: AddOne(stored, -1)}


def gemma(header: Header) -> dict[str, Any]:
    return header.config("GemmaForCausalLM")


def gemma2(header: Header) -> dict[str, Any]:
    return header.config(
        "Gemma2ForCausalLM",
        header.windows,
        query_pre_attn_scalar=_query_scalar(header, 46),
        attn_logit_softcapping=shortest(header.fields.attention_cap or 50.0),
        final_logit_softcapping=shortest(header.fields.logits_cap or 30.0),
    )


def gemma3(header: Header) -> dict[str, Any]:
    """Layers with a window have a RoPE of their own, which is never scaled."""
    return header.config(
        "Gemma3ForCausalLM",
        header.windows,
        query_pre_attn_scalar=_query_scalar(header, 62),
        final_logit_softcapping=header.fields.logits_cap,
        rope_local_base_freq=shortest(header.fields.freq_base_window),
    )


def _query_scalar(header: Header, largest: int) -> float:
    """The head's size, but for the models of 27B: they are known by their number of layers."""
    fields = header.fields
    if fields.attention_scale is not None:
        return float(fields.attention_scale**-2.0)
    if fields.block_count == largest:
        return fields.embedding_length / fields.head_count
    return header.head_dim


ARCHITECTURES = (
    Architecture("gemma", gemma, NORMS),
    Architecture("gemma2", gemma2, NORMS),
    Architecture("gemma3", gemma3, NORMS),
)
