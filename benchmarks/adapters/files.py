"""Adapters of random numbers, as PEFT saves them, and a model in the shape of Llama 3.2 1B."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

RANK = 16
STANDARD_DEVIATION = 0.02
ONE_B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 49152,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
}


def model_folder(folder: Path, config: dict[str, Any]) -> Path:
    """A folder with a config.json alone, for `load_format="dummy"`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


def shapes(config: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """[out, in] of each weight of a Llama's layer that is adapted: all of them."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim", width // heads)
    queries, keys = heads * head_dim, config["num_key_value_heads"] * head_dim
    return {
        "self_attn.q_proj": (queries, width),
        "self_attn.k_proj": (keys, width),
        "self_attn.v_proj": (keys, width),
        "self_attn.o_proj": (width, queries),
        "mlp.gate_proj": (inner, width),
        "mlp.up_proj": (inner, width),
        "mlp.down_proj": (width, inner),
    }


def write_adapters(
    folder: Path, config: dict[str, Any], count: int, rank: int = RANK
) -> list[Path]:
    """So many adapters of all weights of all layers, each in its folder, in float32."""
    rng = np.random.default_rng(0)
    return [_write(folder / f"adapter-{i}", config, rank, rng) for i in range(count)]


def _write(folder: Path, config: dict[str, Any], rank: int, rng: np.random.Generator) -> Path:
    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32) * np.float32(STANDARD_DEVIATION)

    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for name, (outputs, inputs) in shapes(config).items():
            prefix = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{prefix}.lora_A.weight"] = draw(rank, inputs)
            tensors[f"{prefix}.lora_B.weight"] = draw(outputs, rank)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    modules = [name.rpartition(".")[2] for name in shapes(config)]
    peft = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": modules}
    (folder / "adapter_config.json").write_text(json.dumps(peft), "utf-8")
    return folder
