"""Llama 4 (text): chunks in layers with RoPE, whose q/k norm follows it; experts in some layers.

Every fourth layer has no RoPE and sees all positions; its queries grow with their position. The
weight of an expert multiplies its input.
"""

import dataclasses
from typing import ClassVar

from jax_engine.errors import ConfigError
from jax_engine.model_spec import (
    ExpertsSpec,
    HeadNormSpec,
    LayerSpec,
    ModelSpec,
    QueryGrowth,
    RouterSpec,
)
from jax_engine.models.checkpoints.file_schema import NotNegative, Size
from jax_engine.models.families import llama
from jax_engine.models.families.experts import grouped, shared_weights
from jax_engine.models.families.hf_config import CHUNKED, FILE, FULL, check_layer_types
from jax_engine.models.families.neighbours import qkv_in_halves
from jax_engine.models.hf_schemas import Epsilon, LlamaFields, Theta
from jax_engine.weights.transforms import Concatenate, Constant, Declaration, Transpose


class Fields(LlamaFields, frozen=True):
    """Llama's fields and the kinds of layers; `no_rope_layers` has a 1 for each that rotates."""

    layer_kinds: ClassVar[tuple[str, ...]] = (CHUNKED, FULL)

    num_key_value_heads: Size | None = 8
    head_dim: Size | None = 128
    rms_norm_eps: Epsilon = 1e-5
    rope_theta: Theta = 500000.0
    intermediate_size_mlp: Size = 16384
    num_local_experts: Size = 16
    num_experts_per_tok: Size = 1
    moe_layers: list[int] | None = None
    interleave_moe_layer_step: Size = 1
    use_qk_norm: bool = True
    no_rope_layers: list[int] | None = None
    no_rope_layer_interval: Size = 4
    attention_chunk_size: Size | None = 8192
    layer_types: list[str] | None = None
    attn_temperature_tuning: bool = True
    floor_scale: Size = 8192
    attn_scale: NotNegative = 0.1


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers, each with its kind of attention and of network."""
    plain = llama.specification(fields)
    ((layer,),) = (group.pattern for group in plain.groups)
    mlp = llama.mlp_of(fields)
    router = RouterSpec(fields.num_local_experts, fields.num_experts_per_tok, "chosen_sigmoid")
    experts = ExpertsSpec(router, mlp, shared=mlp, scaled_input=True)
    dense = dataclasses.replace(mlp, width=fields.intermediate_size_mlp)
    every = fields.interleave_moe_layer_step
    count = fields.num_hidden_layers
    sparse = range(every - 1, count, every) if fields.moe_layers is None else fields.moe_layers
    turned = rotated(fields)
    types = fields.layer_types or [CHUNKED if one else FULL for one in turned]
    check_layer_types(types, count, Fields.layer_kinds)
    layers = [
        dataclasses.replace(
            attending(fields, layer, turned=bool(turned[n]), in_chunks=types[n] == CHUNKED),
            mlp=experts if n in sparse else dense,
        )
        for n in range(count)
    ]
    return dataclasses.replace(plain, groups=grouped(layers))


def rotated(fields: Fields) -> list[int]:
    """A 1 for each layer that rotates. Raises ConfigError if the list is too short."""
    count, every = fields.num_hidden_layers, fields.no_rope_layer_interval
    given = fields.no_rope_layers or [int((n + 1) % every != 0) for n in range(count)]
    if len(given) < count:
        raise ConfigError(
            f"{FILE}: no_rope_layers has {len(given)} layers, num_hidden_layers {count}."
        )
    return given[:count]


def attending(fields: Fields, layer: LayerSpec, *, turned: bool, in_chunks: bool) -> LayerSpec:
    """A layer with its attention. Queries grow where they are not rotated."""
    norm = HeadNormSpec(fields.rms_norm_eps, rotated_first=True)
    growth = QueryGrowth(fields.attn_scale, fields.floor_scale, first=1)
    attention = dataclasses.replace(
        layer.attention,
        rope=layer.attention.rope if turned else None,
        head_norm=norm if turned and fields.use_qk_norm else None,
        query_growth=None if turned or not fields.attn_temperature_tuning else growth,
        chunk=fields.attention_chunk_size if in_chunks else None,
    )
    return dataclasses.replace(layer, attention=attention)


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names, but for the networks; experts are stored as [in, out]."""
    block = "model.layers.{layer}.feed_forward"
    gate, up, down = (f"{block}.{name}_proj.{{kind}}" for name in ("gate", "up", "down"))
    return (
        llama.weights(spec)
        | qkv_in_halves(spec)
        | shared_weights(f"{block}.shared_expert")
        | {
            "layers.mlp.gate_up": Concatenate((gate, up)),
            "layers.mlp.down": down,
            "layers.attention.q_norm": Constant(1.0),
            "layers.attention.k_norm": Constant(1.0),
            "layers.experts.router": f"{block}.router.{{kind}}",
            "layers.experts.gate_up.weight": Transpose(f"{block}.experts.gate_up_proj"),
            "layers.experts.down.weight": Transpose(f"{block}.experts.down_proj"),
        }
    )
