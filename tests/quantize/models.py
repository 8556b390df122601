"""Tiny float checkpoints, and what is written of them."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from jax_engine.models.checkpoints.files_source import FilesSource
from jax_engine.quantize.options import Options
from jax_engine.quantize.run import quantize
from reference.quantization import awq, compressed_tensors, fp8, gptq
from tests.golden import tiny_checkpoints as tiny
from tests.models.checkpoints import write_checkpoint
from tests.support.byte_tokenizer import VOCAB, save_byte_tokenizer

CONFIG = tiny.CONFIGS["plain"] | {"hidden_size": 64, "intermediate_size": 96, "vocab_size": VOCAB}
PROMPT = [1, 200, 7, 99, 3, 45, 45, 120, 12, 13, 14, 250]


def write_model(directory: Path, config: dict[str, Any] = CONFIG) -> Path:
    """A checkpoint of two shards whose tokens are bytes."""
    save_byte_tokenizer(write_checkpoint(directory, config, num_shards=2))
    return directory


def quantized(model: Path, out: Path, **options: Any) -> Path:
    return quantize(str(model), str(out), Options(**options), use_tqdm=False)


def parts_of(out: Path, module: str) -> dict[str, np.ndarray]:
    """The tensors of a module."""
    source = FilesSource(out)
    found = [name for name in source.names() if name.startswith(f"{module}.")]
    return {name.removeprefix(f"{module}."): source.raw(name) for name in found}


def decoded(out: Path, module: str, kind: str) -> np.ndarray:
    """The oracle's numbers of a module."""
    parts = parts_of(out, module)
    if kind == "gptq":
        return gptq.decode(gptq.Tensors(**parts), 4)
    if kind == "awq":
        return awq.decode(awq.Tensors(**parts))
    if kind == "fp8":
        codes, scale = parts["weight"].view(np.uint8), parts["weight_scale"]
        return fp8.decode(fp8.Tensors(codes, scale, (1, codes.shape[1])))
    if kind == "w8a8":
        return compressed_tensors.decode_integers(compressed_tensors.Integers(**parts))
    num_outputs, num_inputs = parts["weight_shape"]
    scale = parts["weight_scale"].astype(np.float32)
    named = parts | {"weight_scale": scale, "weight_shape": (num_outputs, num_inputs)}
    stored = compressed_tensors.Packed(**named)
    return compressed_tensors.decode_packed(stored, 4 if kind == "w4a16" else 8)


def all_decoded(out: Path, kind: str, config: dict[str, Any] = CONFIG) -> dict[str, np.ndarray]:
    """Every tensor under its Hugging Face name, matrices of layers by the oracle."""
    found = tiny.weights(config)
    for name in found:
        if name.endswith("_proj.weight"):
            found[name] = decoded(out, name.removesuffix(".weight"), kind)
    return found


def digests(out: Path) -> dict[str, str]:
    """The SHA-256 of every file."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in out.iterdir()}
