"""Weights of a directory in Hugging Face layout: model.safetensors, or shards and their index."""

import json
import shlex
import threading
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import Any

import ml_dtypes  # noqa: F401  registers bfloat16 with NumPy, which safetensors then returns
import numpy as np
from safetensors import SafetensorError, safe_open

from jax_engine.errors import WeightsError
from jax_engine.file_schema import checked, read_json, short
from jax_engine.models.safetensors_raw import RawFile
from jax_engine.models.schemas import IndexFields

INDEX = "model.safetensors.index.json"
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
SUPPORTED_DTYPES = ("F64", "F32", "F16", "BF16")


class SafetensorsSource:
    """Tensors of one or several safetensors files, read one at a time from the mapped file.

    Raises:
        WeightsError: there is no file, the index is damaged, or a shard is missing or cut off.
    """

    def __init__(self, directory: Path):
        self.location = directory
        self._files: dict[str, Any] = {}  # tensor name -> open file
        self._paths: dict[str, Path] = {}
        self._raw: dict[Path, RawFile] = {}  # opened when first read
        self._opening = threading.Lock()
        for path in _weight_files(directory):
            opened = _open(path)
            for name in opened.keys():  # noqa: SIM118  not a mapping
                self._files[name], self._paths[name] = opened, path

    def names(self) -> Collection[str]:
        return self._files.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._files[name].get_slice(name).get_shape())

    def dtype(self, name: str) -> str:
        """What the file calls the dtype: "F32", "I8"."""
        return str(self._files[name].get_slice(name).get_dtype())

    def raw(self, name: str) -> np.ndarray:
        """The tensor as it is stored, of any dtype: a view of the mapped file. Thread-safe.

        Raises:
            WeightsError: NumPy with ml_dtypes has no such dtype, or the file is unreadable.
        """
        path = self._paths[name]
        with self._opening:
            if path not in self._raw:
                self._raw[path] = RawFile(path)
        return self._raw[path].read(name)

    def read_into(self, name: str, out: np.ndarray) -> None:
        stored = self.dtype(name)
        if stored not in SUPPORTED_DTYPES:
            raise WeightsError(
                f"{self.describe(name)}: dtype {stored} is not supported; "
                f"known: {', '.join(SUPPORTED_DTYPES)}."
            )
        try:
            out[...] = self._files[name].get_tensor(name)
        except (SafetensorError, TypeError, OSError) as error:
            raise WeightsError(f"{self.describe(name)}: unreadable: {error}.") from error

    def describe(self, name: str) -> str:
        return f"{self._paths[name]}, tensor {name}"


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="numpy")
    except (SafetensorError, OSError) as error:
        size = path.stat().st_size if path.exists() else 0
        raise WeightsError(
            f"{path} ({size} bytes) is not a whole safetensors file: {error}. Download it again."
        ) from error


def read_index(directory: Path) -> list[str] | None:
    """Names of the shards that the index lists; None without an index.

    Raises:
        WeightsError: It is damaged, or a name leads out of the directory.
    """
    index = directory / INDEX
    if not index.exists():
        return None
    found = checked(read_json(index), IndexFields, str(index), WeightsError)
    shards = sorted(set(found.weight_map.values()))
    outside = [shard for shard in shards if not _is_plain_path(shard)]
    if outside or not shards:
        raise WeightsError(
            f"{index}: weight_map must name files of its own directory, "
            f"got {short(outside[0] if outside else found.weight_map)}."
        )
    return shards


def _is_plain_path(name: str) -> bool:
    """Whether a name stays in the directory: no "..", not absolute, only printable text."""
    parts = PurePosixPath(name).parts
    return name.isprintable() and bool(parts) and ".." not in parts and parts[0] != "/"


def _weight_files(directory: Path) -> list[Path]:
    shards = read_index(directory)
    if shards is not None:
        missing = [shard for shard in shards if not (directory / shard).is_file()]
        if missing:
            raise WeightsError(
                f"{directory}: {len(missing)} of {len(shards)} shards named by {INDEX} are "
                f"missing, {missing[0]} first. Download the model again."
            )
        return [directory / shard for shard in shards]
    files = sorted(directory.glob("*.safetensors"))
    pickled = sorted(path.name for kind in PICKLED for path in directory.glob(kind))
    if not files and pickled:
        here = json.dumps(str(directory), ensure_ascii=False)
        code = "from transformers import AutoModelForCausalLM as M; "
        code += f"M.from_pretrained({here}).save_pretrained({here})"
        raise WeightsError(
            f"{directory} has its weights in {pickled[0]}, a pickle, which can run any code and is "
            "never read. Convert them once, on a machine with transformers and PyTorch: "
            f"python -c {shlex.quote(code)}"
        )
    if not files:
        raise WeightsError(
            f"{directory} has no *.safetensors file. Convert the weights to safetensors, give a "
            'GGUF file, or use load_format="dummy" for random weights.'
        )
    return files
