"""Tiny random Llamas as checkpoints on disk, and the same weights in the reference's hands."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from reference.transformer import Transformer, TransformerConfig, weight_shapes
from tests.support import byte_tokenizer

VOCAB = 31
EOS = 2


def tiny_config(**changes: Any) -> TransformerConfig:
    """Two layers, grouped queries, nothing a multiple of anything."""
    settings: dict[str, Any] = {
        "vocab_size": VOCAB, "hidden_size": 20, "intermediate_size": 28, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "max_position_embeddings": 64,
    }  # fmt: skip
    return TransformerConfig(**(settings | changes))


def random_weights(config: TransformerConfig, seed: int = 0) -> dict[str, np.ndarray]:
    """Large enough that logits are far apart: ties would hide bugs."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in weight_shapes(config).items():
        values = rng.standard_normal(shape) * (0.3 if len(shape) > 1 else 0.1)
        weights[name] = (values + name.endswith("norm.weight")).astype(np.float32)
    return weights


def save_checkpoint(
    folder: Path, config: TransformerConfig, weights: dict[str, np.ndarray]
) -> Path:
    """Hugging Face layout, without a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = "Llama" if config.sliding_window is None else "Mistral"
    raw = asdict(config) | {
        "architectures": [f"{kind}ForCausalLM"],
        "model_type": kind.lower(),
        "hidden_act": "silu",
        "eos_token_id": EOS,
        "bos_token_id": 1,
    }
    (folder / "config.json").write_text(json.dumps(raw))
    save_file(weights, folder / "model.safetensors")
    return folder


def tiny_llama(folder: Path, seed: int = 0, **changes: Any) -> tuple[Path, Transformer]:
    """A checkpoint under `folder`, and the reference's decoder with the same weights."""
    config = tiny_config(**changes)
    weights = random_weights(config, seed)
    return save_checkpoint(folder, config, weights), Transformer(config, weights)


def byte_llama(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """A checkpoint under `folder` that speaks text: its tokens are bytes."""
    path, _ = tiny_llama(folder, seed, **{"vocab_size": byte_tokenizer.VOCAB} | changes)
    byte_tokenizer.save_byte_tokenizer(path)
    return path
