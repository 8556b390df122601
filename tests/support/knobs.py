"""One drawn model for both sides: the oracle's configuration and the engine's specification.

Each switch is written twice here, once for each side, since the two describe models in their own
words. What is drawn combines switches as no family does.
"""

import dataclasses
from typing import Any

import numpy as np
from hypothesis import strategies as st

from jax_engine.model_spec import (
    AttentionSpec,
    ExpertsSpec,
    HeadNormSpec,
    LatentSpec,
    LayerSpec,
    MlpSpec,
    ModelSpec,
    NormSpec,
    QueryGrowth,
    RopeConfig,
    RouterSpec,
)
from jax_engine.models.families.experts import grouped
from jax_engine.weights.transforms import (
    Concatenate,
    Constant,
    Declaration,
    Heads,
    Stack,
    Transpose,
    split,
)
from reference.transformer_config import (
    ExpertsConfig,
    LatentConfig,
    Rope,
    TransformerConfig,
    weight_shapes,
)

EPS = 1e-5
ROPES = (Rope(500.0), Rope(70.0), Rope(500.0, {"rope_type": "linear", "factor": 3.0}), None)
PLACEMENTS = ("pre", "post", "sandwich", "parallel", "parallel_two")
ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu", "relu2")
SCORES = ("softmax", "chosen_softmax", "sigmoid", "chosen_sigmoid")
Weights = dict[str, np.ndarray]


@st.composite
def experts(draw: Any) -> ExpertsConfig:
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    count = groups * draw(st.integers(1, 3))
    top_groups = draw(st.integers(1, groups))
    shared = draw(st.sampled_from([0, 5, 12]))
    return ExpertsConfig(
        num_experts=count,
        num_chosen=draw(st.integers(1, count // groups * top_groups)),
        width=draw(st.sampled_from([4, 9])),
        scores=draw(st.sampled_from(SCORES)),
        renormalise=draw(st.booleans()),
        scaling=draw(st.sampled_from([1.0, 1.7])),
        router_bias=draw(st.booleans()),
        selection_bias=draw(st.booleans()),
        num_groups=groups,
        num_top_groups=top_groups,
        experts_judged=draw(st.integers(1, 2)),
        bias=draw(st.booleans()),
        shared_width=shared,
        shared_gate=shared > 0 and draw(st.booleans()),
        scaled_input=draw(st.booleans()),
    )


@st.composite
def latents(draw: Any) -> LatentConfig:
    return LatentConfig(
        kv_rank=draw(st.sampled_from([3, 8])),
        rotated=draw(st.sampled_from([2, 4])),
        plain=draw(st.sampled_from([1, 4])),
        value_dim=draw(st.sampled_from([2, 5])),
        q_rank=draw(st.sampled_from([None, 6])),
    )


@st.composite
def transformer_configs(draw: Any) -> TransformerConfig:
    """A small decoder with any of the switches."""
    layers, size = draw(st.integers(1, 4)), draw(st.sampled_from([4, 8]))
    kv_heads = draw(st.sampled_from([1, 2]))
    heads = kv_heads * draw(st.integers(1, 2))
    norm, head_kind = (draw(st.sampled_from(["rms", "layer"])) for _ in range(2))
    rotary = draw(st.sampled_from([None, 2, size]))
    optional = {
        "learned_positions": 64,
        "layer_ropes": draw(st.tuples(*[st.sampled_from(ROPES)] * layers)),
        "alibi_slopes": tuple(0.5 / (head + 1) for head in range(heads)),
        "layer_chunks": draw(st.tuples(*[st.sampled_from([None, 4, 8])] * layers)),
        "layer_windows": draw(st.tuples(*[st.sampled_from([None, 3, 5])] * layers)),
        "query_scale": 0.6,
        "query_growth": (0.4, 4),
        "attention_soft_cap": 2.5,
        "clip_qkv": 1.1,
        "logits_soft_cap": 2.0,
        "experts": draw(experts()),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(optional))))
    latent = draw(st.one_of(st.none(), latents()))
    if latent is not None:
        chosen -= {"clip_qkv"}
    gated = draw(st.booleans())
    activations = [name for name in ACTIVATIONS if not gated or name != "relu2"]
    activations += ["xielu"] * (not gated and "experts" not in chosen)
    some_layers = st.sets(st.integers(0, layers - 1))
    return TransformerConfig(
        vocab_size=draw(st.sampled_from([11, 32])),
        hidden_size=draw(st.sampled_from([8, 13])),
        intermediate_size=draw(st.sampled_from([6, 17])),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=size,
        rms_norm_eps=EPS,
        rope_theta=300.0,
        max_position_embeddings=64,
        tie_word_embeddings=draw(st.booleans()),
        sliding_window=draw(st.sampled_from([None, None, 4])),
        attention_bias=draw(st.booleans()),
        mlp_bias=draw(st.booleans()),
        norm=norm,
        norm_bias=norm == "layer" and draw(st.booleans()),
        norm_placement=draw(st.sampled_from(PLACEMENTS)),
        rotary_dim=rotary,
        sinks=draw(st.booleans()),
        head_norm=draw(st.sampled_from([None, "each", "all"])),
        head_norm_kind=head_kind,
        head_norm_bias=head_kind == "layer" and draw(st.booleans()),
        head_norm_rotated_first=draw(st.booleans()),
        layers_without_head_norm=tuple(draw(some_layers)),
        growth_counts_itself=draw(st.booleans()),
        layers_without_growth=tuple(draw(some_layers)),
        output_bias=draw(st.sampled_from([None, True, False])),
        latent=latent,
        hidden_act=draw(st.sampled_from([*activations, *["clipped_swiglu"] * gated])),
        gated_mlp=gated,
        dense_layers=tuple(draw(some_layers)),
        embedding_norm=draw(st.booleans()),
        embedding_factor=draw(st.sampled_from([1.0, 2.3])),
        scales_inputs=draw(st.booleans()),
        residual_factor=draw(st.sampled_from([1.0, 0.4])),
        logits_factor=draw(st.sampled_from([1.0, 0.3])),
        head_bias=draw(st.booleans()),
        **{name: optional[name] for name in chosen},
    )


def random_weights(config: TransformerConfig, seed: int) -> Weights:
    """Weights by which every switch matters: scales of norms around 1, the rest around 0."""
    rng = np.random.default_rng(seed)
    return {
        name: (name.endswith("norm.weight") + rng.uniform(-0.5, 0.5, shape)).astype(np.float32)
        for name, shape in weight_shapes(config).items()
    }


def specification(config: TransformerConfig) -> ModelSpec:
    """The engine's words for the same model."""
    norm = NormSpec(EPS, "rms" if config.norm == "rms" else "layer", config.norm_bias)
    layers = [_layer(config, layer, norm) for layer in range(config.num_hidden_layers)]
    return ModelSpec(
        vocab_size=config.vocab_size,
        width=config.hidden_size,
        groups=grouped(layers),
        norm=norm,
        max_context_len=config.max_position_embeddings,
        tied=config.tie_word_embeddings,
        head_bias=config.head_bias and not config.tie_word_embeddings,
        learned_positions=config.learned_positions,
        embedding_factor=config.embedding_factor,
        scales_inputs=config.scales_inputs,
        embedding_norm=norm if config.embedding_norm else None,
        logits_factor=config.logits_factor,
        logits_cap=config.logits_soft_cap,
    )


def _layer(config: TransformerConfig, layer: int, norm: NormSpec) -> LayerSpec:
    placement = config.norm_placement
    before = placement != "post"
    behind = placement in ("post", "sandwich")
    mlp = MlpSpec(
        config.intermediate_size,
        config.hidden_act,  # type: ignore[arg-type]
        config.gated_mlp,
        config.mlp_bias,
    )
    return LayerSpec(
        attention=_attention(config, layer),
        mlp=_experts(config) if config.has_experts(layer) else mlp,
        input_norm=norm if before else None,
        attention_output_norm=norm if behind else None,
        mlp_norm=norm if before and placement != "parallel" else None,
        mlp_output_norm=norm if behind else None,
        parallel=placement.startswith("parallel"),
        residual_factor=config.residual_factor,
    )


def _attention(config: TransformerConfig, layer: int) -> AttentionSpec:
    bias, rope, growth = config.attention_bias, config.rope(layer), config.query_growth
    head_norm = None
    if layer in config.layers_without_growth:
        growth = None
    if config.head_norm is not None and layer not in config.layers_without_head_norm:
        kind: Any = config.head_norm_kind
        whole, rotated_first = config.head_norm == "all", config.head_norm_rotated_first
        head_norm = HeadNormSpec(EPS, kind, config.head_norm_bias, whole, rotated_first)
    stretched: dict[str, Any] = {}
    if rope is not None and rope.scaling:
        stretched = {"type": "linear", "factor": rope.scaling["factor"]}
    sizes: dict[str, Any] = {
        "num_kv_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "rotary_dim": config.rotary_dim,
        "clip": config.clip_qkv,
        "head_norm": head_norm,
    }
    if config.latent is not None:
        own = config.latent
        norm = NormSpec(own.eps)
        sizes = {
            "num_kv_heads": 1,
            "head_dim": own.kv_rank + own.rotated,
            "rotary_dim": own.rotated,
            "latent": LatentSpec(own.kv_rank, own.plain, own.value_dim, norm, own.q_rank),
        }
    return AttentionSpec(
        num_heads=config.num_attention_heads,
        rope=None if rope is None else RopeConfig(rope.theta, **stretched),
        window=config.window(layer),
        chunk=None if config.layer_chunks is None else config.layer_chunks[layer],
        scale=config.query_scale,
        query_growth=None
        if growth is None
        else QueryGrowth(*growth, first=int(config.growth_counts_itself)),
        soft_cap=config.attention_soft_cap,
        alibi_slopes=config.alibi_slopes,
        sinks=config.sinks,
        qkv_bias=bias,
        output_bias=bias if config.output_bias is None else config.output_bias,
        **sizes,
    )


def _experts(config: TransformerConfig) -> ExpertsSpec:
    own = config.experts
    assert own is not None
    kind: Any = own.scores
    router = RouterSpec(
        own.num_experts,
        own.num_chosen,
        kind,
        own.renormalise,
        own.scaling,
        own.router_bias,
        own.selection_bias,
        own.num_groups,
        own.num_top_groups,
        own.experts_judged,
    )
    activation: Any = config.hidden_act
    expert = MlpSpec(own.width, activation, bias=own.bias)
    shared = dataclasses.replace(expert, width=own.shared_width, bias=False)
    shared_network = shared if own.shared_width else None
    return ExpertsSpec(router, expert, shared_network, own.shared_gate, own.scaled_input)


def declared(config: TransformerConfig) -> dict[str, Declaration]:
    """How the engine's parameters are made of the oracle's weights."""
    layer = "model.layers.{layer}"
    attention, mlp = f"{layer}.self_attn", f"{layer}.mlp"
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    sizes = [count * config.head_dim for count in (heads, kv_heads, kv_heads)]
    found: dict[str, Declaration] = {
        "embed": "model.embed_tokens.{kind}",
        "positions": "model.embed_positions.{kind}",
        "embed_norm": "model.embed_norm.{kind}",
        "layers.input_norm": f"{layer}.input_layernorm.{{kind}}",
        "layers.attention_output_norm": f"{layer}.attention_output_norm.{{kind}}",
        "layers.mlp_norm": f"{layer}.post_attention_layernorm.{{kind}}",
        "layers.mlp_output_norm": f"{layer}.mlp_output_norm.{{kind}}",
        "layers.attention.qkv": Concatenate(
            [f"{attention}.{name}_proj.{{kind}}" for name in "qkv"], sizes
        ),
        "layers.attention.o": f"{attention}.o_proj.{{kind}}",
        "layers.attention.q_norm": f"{attention}.q_norm.{{kind}}",
        "layers.attention.k_norm": f"{attention}.k_norm.{{kind}}",
        "layers.attention.sinks": f"{attention}.sinks",
        "norm": "model.norm.{kind}",
        "lm_head": "lm_head.{kind}",
    }
    if config.latent is not None:
        found |= _latent(config, config.latent, attention)
    found |= _network("layers.mlp", mlp) | {"layers.mlp.xielu": f"{mlp}.xielu"}
    if config.experts is not None:
        each = _network("layers.experts", f"{mlp}.experts.{{expert}}")
        count = range(config.experts.num_experts)
        found |= {name: Stack("expert", count, one) for name, one in each.items()}
        found |= _network("layers.experts.shared", f"{mlp}.shared")
        found |= {
            "layers.experts.router": f"{mlp}.router.{{kind}}",
            "layers.experts.shared_gate": f"{mlp}.shared_gate.weight",
        }
    return found


def _latent(config: TransformerConfig, sizes: LatentConfig, prefix: str) -> dict[str, Declaration]:
    """Products that make latents, in one; and each head's parts of a product by latents."""
    queries, stored = sizes.plain + sizes.rotated, sizes.kv_rank + sizes.rotated
    queries *= config.num_attention_heads
    name, rank = ("q_proj", queries) if sizes.q_rank is None else ("q_a_proj", sizes.q_rank)
    first = Concatenate(
        (f"{prefix}.{name}.{{kind}}", f"{prefix}.kv_a_proj_with_mqa.{{kind}}"), (rank, stored)
    )
    bias = Concatenate((Constant(0.0), f"{prefix}.kv_a_proj_with_mqa.bias"), (rank, stored))
    heads, both = Heads(f"{prefix}.kv_b_proj.weight"), sizes.plain + sizes.value_dim
    module = "layers.attention"
    return {
        f"{module}.down": first,
        f"{module}.q_norm": f"{prefix}.q_a_layernorm.{{kind}}",
        f"{module}.q_up": f"{prefix}.q_b_proj.{{kind}}",
        f"{module}.kv_norm": f"{prefix}.kv_a_layernorm.{{kind}}",
        f"{module}.k_up": Transpose(split(heads, 0, sizes.plain, both, axis=1)),
        f"{module}.v_up": split(heads, sizes.plain, both, both, axis=1),
    } | ({f"{module}.down.bias": bias} if sizes.q_rank is None else {})


def _network(module: str, prefix: str) -> dict[str, Declaration]:
    gate, up, down = (f"{prefix}.{name}_proj.{{kind}}" for name in ("gate", "up", "down"))
    return {
        f"{module}.gate_up": Concatenate((gate, up)),
        f"{module}.up": up,
        f"{module}.down": down,
    }
