"""Tiny adapters made of random numbers, as PEFT saves them."""

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from jax_engine.lora.adapter import Adapter
from jax_engine.lora.modules import Module, Modules, modules_of
from jax_engine.lora.peft import adapter_of_arrays
from jax_engine.models.registry import config_from_hf
from tests.golden import tiny_checkpoints as tiny

MODEL = tiny.CONFIGS["plain"]
Q0, K1 = "model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.k_proj"
DOWN1, EMBED, HEAD = "model.layers.1.mlp.down_proj", "model.embed_tokens", "lm_head"
RANK = 4
WIDTH, KEYS, NETWORK, VOCABULARY = 32, 16, 48, 61
# MODEL's modules by hand, which takes no device.
PLAIN: dict[str, Module] = {
    EMBED: Module("embedding", WIDTH, VOCABULARY, "embed"),
    HEAD: Module("head", VOCABULARY, WIDTH, "lm_head"),
} | {
    f"model.layers.{layer}.{name}_proj": Module("linear", out_size, in_size, leaf)
    for layer in range(2)
    for name, out_size, in_size, leaf in (
        ("self_attn.q", WIDTH, WIDTH, "layers.attention.qkv"),
        ("self_attn.k", KEYS, WIDTH, "layers.attention.qkv"),
        ("self_attn.v", KEYS, WIDTH, "layers.attention.qkv"),
        ("self_attn.o", WIDTH, WIDTH, "layers.attention.o"),
        ("mlp.gate", NETWORK, WIDTH, "layers.mlp.gate_up"),
        ("mlp.up", NETWORK, WIDTH, "layers.mlp.gate_up"),
        ("mlp.down", WIDTH, NETWORK, "layers.mlp.down"),
    )
}
# Every field that PEFT 0.18 writes, with the values that it has if nobody gives another.
CONFIG: dict[str, Any] = {
    "alora_invocation_tokens": None,
    "alpha_pattern": {},
    "arrow_config": None,
    "auto_mapping": None,
    "base_model_name_or_path": "tiny",
    "bias": "none",
    "corda_config": None,
    "ensure_weight_tying": False,
    "eva_config": None,
    "exclude_modules": None,
    "fan_in_fan_out": False,
    "inference_mode": True,
    "init_lora_weights": True,
    "layer_replication": None,
    "layers_pattern": None,
    "layers_to_transform": None,
    "loftq_config": {},
    "lora_alpha": 8,
    "lora_bias": False,
    "lora_dropout": 0.05,
    "megatron_config": None,
    "megatron_core": "megatron.core",
    "modules_to_save": None,
    "peft_type": "LORA",
    "peft_version": "0.18.0",
    "qalora_group_size": 16,
    "r": RANK,
    "rank_pattern": {},
    "revision": None,
    "target_modules": None,
    "target_parameters": None,
    "task_type": "CAUSAL_LM",
    "trainable_token_indices": None,
    "use_dora": False,
    "use_qalora": False,
    "use_rslora": False,
}


@functools.cache
def modules(name: str = "plain") -> Modules:
    """The modules of one of the tiny Llamas."""
    return modules_of(config_from_hf(tiny.CONFIGS[name]))


def tensors_of(
    names: Iterable[str] = (Q0, K1),
    *,
    of: Modules | None = None,
    rank: int = RANK,
    ranks: dict[str, int] | None = None,
    dtype: Any = np.float32,
    seed: int = 0,
    biases: bool = False,
) -> dict[str, np.ndarray]:
    """The tensors of an adapter of these modules, by PEFT's names."""
    rng, by_name, found = np.random.default_rng(seed), of.by_name if of else PLAIN, {}
    for name in names:
        module, r = by_name[name], (ranks or {}).get(name, rank)
        a, b = rng.normal(size=(r, module.in_size)), rng.normal(size=(module.out_size, r))
        stem = f"base_model.model.{name}.lora_"
        if module.kind == "embedding":
            found |= {f"{stem}embedding_A": a, f"{stem}embedding_B": b}
        else:
            found |= {f"{stem}A.weight": a, f"{stem}B.weight": b}
        if biases:
            found[f"{stem}B.bias"] = rng.normal(size=module.out_size)
    return {name: array.astype(dtype) for name, array in found.items()}


def read(
    tensors: dict[str, np.ndarray] | None = None,
    *,
    of: Modules | None = None,
    limit: int = 16,
    **config: Any,
) -> Adapter:
    """The adapter of tensors in memory; `config` are fields that differ from CONFIG."""
    tensors = tensors_of() if tensors is None else tensors
    return adapter_of_arrays(tensors, CONFIG | config, of or modules(), limit)


def write_folder(folder: Path, tensors: dict[str, np.ndarray], **config: Any) -> Path:
    """A folder of PEFT's."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG | config))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder
