"""`save_sharded_state`: the weights as safetensors files, to be loaded with their configuration.

vLLM writes a file for each device; there is one here, so it is rank 0.
"""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from jax_engine.engine.dtypes import resolve_dtype
from jax_engine.errors import ConfigError
from jax_engine.models.checkpoint import tensor_source
from jax_engine.models.weight_files import INDEX
from jax_engine.weights.tensor_source import TensorSource

PATTERN = "model-rank-{rank}-part-{part}.safetensors"


def save_state(
    source: Path, target: Path, dtype: str, pattern: str | None, max_size: int | None
) -> list[Path]:
    """Writes all tensors of the model in the engine's dtype, and their index; returns the files.

    Args:
        source: The model: a directory or a GGUF file.
        pattern: Pattern of the files' names, with {part}.
        max_size: The most bytes of a file; a file with a single tensor may be larger.

    Raises:
        ConfigError: `pattern` gives all parts one name, or there is no such folder.
    """
    names = PATTERN if pattern is None else pattern
    if names.format(rank=0, part=0, pp_rank=0) == names.format(rank=0, part=1, pp_rank=0):
        raise ConfigError(f"pattern must have {{part}} in it, got {pattern!r}")
    if not target.is_dir():
        raise ConfigError(f"path must be a folder that exists, got {str(target)!r}")
    tensors, written, places = tensor_source(source), list[Path](), dict[str, str]()
    limit = max_size or 1 << 62
    part: dict[str, np.ndarray] = {}
    for name in sorted(tensors.names()):
        tensor = _read(tensors, name, dtype)
        if part and sum(one.nbytes for one in part.values()) + tensor.nbytes > limit:
            written.append(_write(part, target, names, len(written)))
            part = {}
        part[name] = tensor
        places[name] = names.format(rank=0, part=len(written), pp_rank=0)
    written.append(_write(part, target, names, len(written)))
    (target / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return written


def _read(tensors: TensorSource, name: str, dtype: str) -> np.ndarray:
    out = np.empty(tensors.shape(name), resolve_dtype(dtype))
    tensors.read_into(name, out)
    return out


def _write(part: dict[str, np.ndarray], target: Path, names: str, number: int) -> Path:
    path = target / names.format(rank=0, part=number, pp_rank=0)
    save_file(part, path, metadata={"format": "pt"})
    return path
