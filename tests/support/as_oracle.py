"""A model that the engine has read, in the oracle's words: its configuration and its weights.

So the oracle computes any checkpoint that a family can read. What the family has read wrongly is
wrong for both; PyTorch's logits tell.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jax_engine.model_spec import (
    AttentionSpec,
    ExpertsSpec,
    LayerSpec,
    MlpSpec,
    ModelSpec,
    RopeConfig,
)
from jax_engine.models.model_config import ModelConfig
from jax_engine.weights.transforms import Constant, transform_of
from reference.transformer_config import ExpertsConfig, Rope, TransformerConfig, weight_shapes
from tests.weights.arrays_source import ArraysSource

Weights = dict[str, np.ndarray]
PLACEMENTS = {  # parallel, norm before attention, before the MLP, behind
    (False, True, True, False): "pre",
    (False, False, False, True): "post",
    (False, True, True, True): "sandwich",
    (True, True, False, False): "parallel",
    (True, True, True, False): "parallel_two",
}
NORMS = {
    "input_norm": "input_layernorm",
    "attention_output_norm": "attention_output_norm",
    "mlp_norm": "post_attention_layernorm",
    "mlp_output_norm": "mlp_output_norm",
}


def configuration(spec: ModelSpec, length: int) -> TransformerConfig:
    """The oracle's configuration.

    Args:
        length: length of the longest sequence, which chooses among longrope's factors.
    """
    each = list(_layers(spec))
    attentions = [layer.attention for layer in each]
    one = each[0]
    attention = dataclasses.replace(
        one.attention,
        query_growth=next((a.query_growth for a in attentions if a.query_growth), None),
        head_norm=next((a.head_norm for a in attentions if a.head_norm), None),
    )
    norm = one.input_norm or one.attention_output_norm
    assert norm is not None
    sparse = [layer for layer in each if isinstance(layer.mlp, ExpertsSpec)]
    dense = next((layer.mlp for layer in each if isinstance(layer.mlp, MlpSpec)), None)
    mlp = dense or _expert(sparse[0])
    growth, head_norm = attention.query_growth, attention.head_norm
    return TransformerConfig(
        vocab_size=spec.vocab_size,
        hidden_size=spec.width,
        intermediate_size=mlp.width,
        num_hidden_layers=len(each),
        num_attention_heads=attention.num_heads,
        num_key_value_heads=attention.num_kv_heads,
        head_dim=attention.head_dim,
        rms_norm_eps=norm.eps,
        max_position_embeddings=length,
        tie_word_embeddings=spec.tied,
        attention_bias=attention.qkv_bias,
        output_bias=attention.output_bias,
        mlp_bias=mlp.bias,
        norm=norm.kind,
        norm_bias=norm.bias,
        norm_placement=_placement(one),
        learned_positions=spec.learned_positions,
        layer_ropes=tuple(_rope(layer.attention.rope) for layer in each),
        rotary_dim=attention.rotary_dim,
        alibi_slopes=attention.alibi_slopes,
        layer_chunks=tuple(layer.attention.chunk for layer in each),
        layer_windows=tuple(layer.attention.window for layer in each),  # type: ignore[misc]
        query_scale=attention.scale,
        query_growth=None if growth is None else (growth.beta, growth.length),
        growth_counts_itself=growth is not None and growth.first == 1,
        layers_without_growth=_without("query_growth", attentions),
        attention_soft_cap=attention.soft_cap,
        sinks=attention.sinks,
        head_norm=None if head_norm is None else "all" if head_norm.whole else "each",
        head_norm_kind="rms" if head_norm is None else head_norm.kind,
        head_norm_bias=head_norm is not None and head_norm.bias,
        head_norm_rotated_first=head_norm is not None and head_norm.rotated_first,
        layers_without_head_norm=_without("head_norm", attentions),
        clip_qkv=attention.clip,
        hidden_act=mlp.activation,
        gated_mlp=mlp.gated,
        experts=_experts(sparse[0].mlp) if sparse else None,
        dense_layers=tuple(n for n, layer in enumerate(each) if isinstance(layer.mlp, MlpSpec)),
        embedding_norm=spec.embedding_norm is not None,
        embedding_factor=spec.embedding_factor,
        scales_inputs=spec.scales_inputs,
        residual_factor=one.residual_factor,
        logits_factor=spec.logits_factor,
        logits_soft_cap=spec.logits_cap,
        head_bias=spec.head_bias,
    )


def _without(field: str, attentions: Sequence[AttentionSpec]) -> tuple[int, ...]:
    """The layers that lack what others may have."""
    return tuple(n for n, one in enumerate(attentions) if getattr(one, field) is None)


def _layers(spec: ModelSpec) -> Iterator[LayerSpec]:
    """Every layer, in order, with its own rotation and window."""
    for group in spec.groups:
        for repetition in range(group.repeats):
            for layer in group.pattern:
                own: dict[str, Any] = {}
                for name in ("rope", "window"):
                    given = getattr(layer.attention, name)
                    own[name] = given[repetition] if isinstance(given, tuple) else given
                attention: AttentionSpec = dataclasses.replace(layer.attention, **own)
                yield dataclasses.replace(layer, attention=attention)


def _placement(layer: LayerSpec) -> str:
    behind = layer.attention_output_norm is not None
    assert behind == (layer.mlp_output_norm is not None)
    before = layer.input_norm is not None, layer.mlp_norm is not None
    return PLACEMENTS[(layer.parallel, *before, behind)]


def _rope(rope: Any) -> Rope | None:
    if rope is None:
        return None
    assert isinstance(rope, RopeConfig)
    given = {name: value for name, value in dataclasses.asdict(rope).items() if value is not None}
    kind, theta = given.pop("type"), given.pop("theta")
    for factors in ("short_factor", "long_factor"):
        if f"{factors}s" in given:
            given[factors] = list(given.pop(f"{factors}s"))
    return Rope(theta, None if kind == "none" else given | {"rope_type": kind})


def _expert(layer: LayerSpec) -> MlpSpec:
    assert isinstance(layer.mlp, ExpertsSpec)
    return layer.mlp.expert


def _experts(spec: Any) -> ExpertsConfig:
    router, shared = spec.router, spec.shared
    return ExpertsConfig(
        num_experts=router.num_experts,
        num_chosen=router.top_k,
        width=spec.expert.width,
        scores=router.scores,
        renormalise=router.renormalise,
        scaling=router.scaling,
        router_bias=router.bias,
        selection_bias=router.selection_bias,
        num_groups=router.groups,
        num_top_groups=router.top_groups,
        experts_judged=router.judged,
        bias=spec.expert.bias,
        shared_width=0 if shared is None else shared.width,
        shared_gate=spec.shared_gate,
        scaled_input=spec.scaled_input,
    )


@dataclasses.dataclass
class Reader:
    """Reads what the engine's modules are made of."""

    model: ModelConfig
    tensors: Mapping[str, np.ndarray]

    def read(self, module: str, kind: str, shape: tuple[int, ...], layer: int = 0) -> np.ndarray:
        """A parameter of a module, of the layer with this number."""
        declared, name = self.model.weights, f"{module}.{kind}"
        made_of = transform_of(declared[name] if name in declared else declared[module])
        named = made_of.renamed(lambda template: template.replace("{kind}", kind))
        out = np.empty(shape, np.float32)
        if isinstance(named, Constant):
            return np.full(shape, named.value, np.float32)
        named.read_into(ArraysSource(self.tensors), out, {"layer": layer})
        return out


def weights(model: ModelConfig, config: TransformerConfig, tensors: Weights) -> Weights:
    """The oracle's weights, by its names."""
    reader, shapes, found = Reader(model, tensors), weight_shapes(config), {}
    outside = {
        "model.embed_tokens": "embed",
        "model.embed_positions": "positions",
        "model.embed_norm": "embed_norm",
        "model.norm": "norm",
        "lm_head": "lm_head",
    }
    for name, shape in shapes.items():
        module, _, kind = name.rpartition(".")
        if module in outside:
            found[name] = reader.read(outside[module], kind, shape)
    for layer in range(config.num_hidden_layers):
        start = f"model.layers.{layer}."
        own = {n.removeprefix(start): s for n, s in shapes.items() if n.startswith(start)}
        found |= {f"{start}{n}": w for n, w in _layer(reader, own, layer)}
    return found


def _layer(
    reader: Reader, shapes: dict[str, tuple[int, ...]], layer: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Each weight of a layer."""
    for module, name in NORMS.items():
        for kind in ("weight", "bias"):
            if f"{name}.{kind}" in shapes:
                shape = shapes[f"{name}.{kind}"]
                yield f"{name}.{kind}", reader.read(f"layers.{module}", kind, shape, layer)
    fused = {
        "layers.attention.qkv": [f"self_attn.{one}_proj" for one in "qkv"],
        "layers.mlp.gate_up": ["mlp.gate_proj", "mlp.up_proj"],
        "layers.experts.shared.gate_up": ["mlp.shared.gate_proj", "mlp.shared.up_proj"],
    }
    plain = {
        "layers.attention.o": "self_attn.o_proj",
        "layers.attention.q_norm": "self_attn.q_norm",
        "layers.attention.k_norm": "self_attn.k_norm",
        "layers.mlp.down": "mlp.down_proj",
        "layers.experts.shared.down": "mlp.shared.down_proj",
        "layers.experts.router": "mlp.router",
    }
    if "mlp.gate_proj.weight" not in shapes:
        del fused["layers.mlp.gate_up"]
        plain["layers.mlp.up"] = "mlp.up_proj"
    for kind in ("weight", "bias"):
        for module, names in fused.items():
            parts = [f"{name}.{kind}" for name in names if f"{name}.{kind}" in shapes]
            if parts:
                ends = np.cumsum([shapes[part][0] for part in parts])
                whole = (int(ends[-1]), *shapes[parts[0]][1:])
                read = reader.read(module, kind, whole, layer)
                yield from zip(parts, np.split(read, ends[:-1]), strict=True)
        for module, name in plain.items():
            if (full := f"{name}.{kind}") in shapes:
                yield full, reader.read(module, kind, shapes[full], layer)
    for module, kind, full in (
        ("layers.attention", "sinks", "self_attn.sinks"),
        ("layers.mlp", "xielu", "mlp.xielu"),
        ("layers.experts.router", "selection_bias", "mlp.router.selection_bias"),
        ("layers.experts", "shared_gate", "mlp.shared_gate.weight"),
    ):
        if full in shapes:
            yield full, reader.read(module, kind, shapes[full], layer)
    yield from _each_expert(reader, shapes, layer)


def _each_expert(
    reader: Reader, shapes: dict[str, tuple[int, ...]], layer: int
) -> Iterator[tuple[str, np.ndarray]]:
    """The weights of experts, which the engine stacks."""
    for kind in ("weight", "bias"):
        shape = shapes.get(f"mlp.experts.0.down_proj.{kind}")
        up = shapes.get(f"mlp.experts.0.up_proj.{kind}")
        if shape is None or up is None:
            continue
        count = sum(n.startswith("mlp.experts.") and n.endswith("down_proj.weight") for n in shapes)
        down = reader.read("layers.experts.down", kind, (count, *shape), layer)
        both = (count, 2 * up[0], *up[1:])
        gate_up = reader.read("layers.experts.gate_up", kind, both, layer)
        for n in range(count):
            for name, part in zip(("gate", "up"), np.split(gate_up[n], 2), strict=True):
                yield f"mlp.experts.{n}.{name}_proj.{kind}", part
            yield f"mlp.experts.{n}.down_proj.{kind}", down[n]
