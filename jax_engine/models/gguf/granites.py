"""Granite 3, whose factors are metadata; its experts' gate and up are stored apart."""

from typing import Any

from jax_engine.model_spec import ModelSpec
from jax_engine.models.gguf.architecture import Architecture, Header
from jax_engine.models.gguf.llamas import HALVES, local_experts
from jax_engine.models.gguf.rope import shortest
from jax_engine.weights.transforms import Concatenate, Declaration


def granite(header: Header) -> dict[str, Any]:
    fields = header.fields
    factors = {
        "attention_multiplier": fields.attention_scale,
        "embedding_multiplier": fields.embedding_scale,
        "residual_multiplier": fields.residual_scale,
        "logits_scaling": fields.logit_scale,
    }
    given = {name: shortest(value) for name, value in factors.items() if value is not None}
    return header.config("GraniteForCausalLM", given)


def granitemoe(header: Header) -> dict[str, Any]:
    config = granite(header) | local_experts(header)
    return config | {
        "architectures": ["GraniteMoeSharedForCausalLM"],
        "shared_intermediate_size": header.fields.expert_shared_feed_forward_length or 0,
    }


def _experts(spec: ModelSpec, stored: str) -> Declaration:
    del stored
    return gate_up("exps", "weight", spec.experts[0].expert.width, axis=1)


def _shared(spec: ModelSpec, stored: str) -> Declaration:
    del stored
    shared = spec.experts[0].shared
    return gate_up("shexp", "weight", shared.width if shared else 0, axis=0)


def gate_up(which: str, kind: str, width: int, *, axis: int) -> Concatenate:
    """Gate, then up, which are stored apart.

    Args:
        which: "exps" of the experts, "shexp" of the network that all tokens use.
    """
    parts = [f"blk.{{layer}}.ffn_{name}_{which}.{kind}" for name in ("gate", "up")]
    return Concatenate(parts, sizes=(width, width), axis=axis)


ARCHITECTURES = (
    Architecture("granite", granite, HALVES),
    Architecture(
        "granitemoe",
        granitemoe,
        HALVES
        | {
            "block_sparse_moe.input_linear.weight": _experts,
            "shared_mlp.input_linear.weight": _shared,
        },
    ),
)
