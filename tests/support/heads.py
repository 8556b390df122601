"""Checkpoints with a head for classes, rewards or reranking."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.support.byte_tokenizer import save_byte_tokenizer

WIDTH = 20  # of `tiny_llama`


def with_head(plain: Path, target: Path, *, kind: str, labels: int, **more: Any) -> Path:
    """The same decoder with a random head."""
    config = json.loads((plain / "config.json").read_text())
    config["architectures"] = [f"LlamaFor{kind}"]
    config["id2label"] = {str(i): f"label {i}" for i in range(labels)}
    tensors = load_file(plain / "model.safetensors")
    rng = np.random.default_rng(labels)
    tensors.pop("lm_head.weight", None)
    tensors["score.weight"] = rng.standard_normal((labels, WIDTH)).astype(np.float32)
    tensors |= {name: np.asarray(values, np.float32) for name, values in more.items()}
    target.mkdir()
    save_file(tensors, target / "model.safetensors")
    (target / "config.json").write_text(json.dumps(config))
    save_byte_tokenizer(target)
    return target
