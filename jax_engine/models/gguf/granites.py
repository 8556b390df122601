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
    return header.common | given | {"architectures": ["GraniteForCausalLM"]}


def granitemoe(header: Header) -> dict[str, Any]:
    return (
        granite(header)
        | local_experts(header)
        | {
            "architectures": ["GraniteMoeSharedForCausalLM"],
            "shared_intermediate_size": header.fields.expert_shared_feed_forward_length or 0,
        }
    )


def _experts(spec: ModelSpec, stored: str) -> Declaration:
    del stored
    width = spec.experts[0].expert.width
    return _gate_up("exps", width, 1)


def _shared(spec: ModelSpec, stored: str) -> Declaration:
    del stored
    shared = spec.experts[0].shared
    return _gate_up("shexp", shared.width if shared else 0, 0)


def _gate_up(which: str, width: int, axis: int) -> Concatenate:
    parts = [f"blk.{{layer}}.ffn_{name}_{which}.{{kind}}" for name in ("gate", "up")]
    return Concatenate(parts, sizes=(width, width), axis=axis)


ARCHITECTURES = (
    Architecture("granite", granite, HALVES),
    Architecture(
        "granitemoe",
        granitemoe,
        HALVES | {"block_sparse_moe.input_linear": _experts, "shared_mlp.input_linear": _shared},
    ),
)
