"""The model families, and specifications of each: those of its tiny checkpoints in the tests."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from jax_engine.model_spec import LayerSpec, ModelSpec
from jax_engine.models.model_config import ModelConfig
from jax_engine.models.registry import FAMILIES, config_from_hf, family_of
from tests.golden.families.checkpoints import cases

DEPTH = 24  # layers: a multiple of the periods of all families
# Names of the number of layers; and fields with an entry for each layer, or that shorten a period.
_NUMBERS = ("num_hidden_layers", "n_layer", "n_layers")
_OF_LAYERS = (
    "layer_types",
    "no_rope_layers",
    "no_rope_layer_interval",
    "mlp_only_layers",
    "mlp_layer_types",
    "moe_layers",
    "moe_layer_end_index",
)
_QWEN = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}
_OTHER = _QWEN | {"max_position_embeddings": 64}
_LING = _OTHER | {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "num_shared_experts": 1,
    "num_key_value_heads": 2,
}
# Configurations of families that have no tiny checkpoint, since transformers lacks them.
WITHOUT_CASES: dict[str, tuple[dict[str, Any], ...]] = {
    "baichuan": (
        _OTHER | {"architectures": ["BaichuanForCausalLM"]},
        _QWEN | {"architectures": ["BaichuanForCausalLM"]},
    ),
    "bailing_moe": (
        _LING | {"architectures": ["BailingMoeForCausalLM"], "use_bias": False},
        _LING | {"architectures": ["BailingMoeForCausalLM"], "norm_topk_prob": False},
    ),
    "bailing_moe_v2": (
        _LING
        | {"architectures": ["BailingMoeV2ForCausalLM"], "use_bias": False, "num_experts": 16}
        | {"first_k_dense_replace": 1},
    ),
    "internlm": (_OTHER | {"architectures": ["InternLMForCausalLM"]},),
    "minicpm": (
        _OTHER
        | {"architectures": ["MiniCPMForCausalLM"]}
        | {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 8},
    ),
    "qwen": (_QWEN | {"architectures": ["QWenLMHeadModel"]},),
}


@dataclass(frozen=True)
class Family:
    """A file of jax_engine/models/families/.

    Attributes:
        name: the file's name.
        title: the models' names, from the file's docstring.
        special: what the docstring says of them.
        cases: names of its tiny checkpoints.
        configs: the models of the tiny checkpoints.
    """

    name: str
    title: str
    special: str
    architectures: tuple[str, ...]
    cases: tuple[str, ...]
    configs: tuple[ModelConfig, ...]

    @property
    def specs(self) -> list[ModelSpec]:
        return [config.spec for config in self.configs]

    @property
    def has_experts(self) -> bool:
        return any(spec.experts for spec in self.specs)


@cache
def families() -> tuple[Family, ...]:
    """Every family, in the order of the registry."""
    every = cases()
    found = []
    for name in dict.fromkeys(FAMILIES.values()):
        architectures = tuple(one for one in FAMILIES if FAMILIES[one] == name)
        own = tuple(case for case in every if _architecture(every[case]["config"]) in architectures)
        raw = [every[case]["config"] for case in own] or WITHOUT_CASES[name]
        title, _, special = (family_of(architectures[0]).__doc__ or "").strip().partition(":")
        special = " ".join(special.split("\n\n")[0].split())
        configs = tuple(config_from_hf(deepened(one)) for one in raw)
        found.append(Family(name, title, special, architectures, own, configs))
    return tuple(found)


def _architecture(config: Mapping[str, Any]) -> str:
    name: str = config["architectures"][0]
    return name


def deepened(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with `DEPTH` layers, which differ as the family's do by default."""
    kept = {name: value for name, value in config.items() if name not in _OF_LAYERS}
    return kept | {name: DEPTH for name in _NUMBERS if name in config}


def layers_of(spec: ModelSpec) -> list[LayerSpec]:
    """Each layer of a model, with its own window and rotary embedding."""
    layers = []
    for group in spec.groups:
        for repetition in range(group.repeats):
            layers += [_at(layer, repetition) for layer in group.pattern]
    return layers


def _at(layer: LayerSpec, repetition: int) -> LayerSpec:
    attention = layer.attention
    own = {
        name: setting[repetition]
        for name in ("rope", "window")
        if isinstance(setting := getattr(attention, name), tuple)
    }
    return replace(layer, attention=replace(attention, **own))
