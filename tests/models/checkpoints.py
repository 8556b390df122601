"""Writes the tiny checkpoints of tests/golden in Hugging Face layout."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.golden import tiny_checkpoints as tiny


def write_checkpoint(
    directory: Path,
    config: dict[str, Any],
    tensors: dict[str, np.ndarray] | None = None,
    num_shards: int = 1,
) -> Path:
    """config.json and model.safetensors, or shards and their index."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    tensors = tiny.weights(config) if tensors is None else tensors
    if num_shards == 1:
        save_file(tensors, directory / "model.safetensors")
        return directory
    weight_map = {}
    for shard in range(num_shards):
        file = f"model-{shard + 1:05}-of-{num_shards:05}.safetensors"
        part = dict(list(tensors.items())[shard::num_shards])
        save_file(part, directory / file)
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory
