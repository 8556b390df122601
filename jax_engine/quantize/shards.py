"""The new directory: its shards, and how far an interrupted run has come.

`quantize.json` says what was asked for, and has the SHA-256 of each finished shard. A run with the
same request keeps those that are whole; another request is refused. Files are written under another
name and renamed, config.json last: a directory that has it is finished.

A shard is written tensor by tensor, in any dtype; `safetensors.numpy` copies all tensors before it
writes, and knows fewer dtypes. A finished shard is read back as the loader would read it.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors import safe_open

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.models.checkpoints.file_schema import checked, read_json, short
from jax_engine.models.checkpoints.quantization.quantized_source import (
    METHODS,
    QuantizedSource,
    method_of,
)
from jax_engine.models.checkpoints.safetensors_file import RawFile
from jax_engine.models.checkpoints.stored_dtypes import DTYPES
from jax_engine.models.checkpoints.weight_layouts import CONFIG, INDEX, MISTRAL, PARAMS, PYTORCH
from jax_engine.weights.tensor_source import TensorSource

DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
PARTIAL = ".partial"


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> str:
    """Writes the whole file or none, and returns its SHA-256. Raises OSError."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, array in tensors.items():
        entry = {"dtype": DTYPE_NAMES[array.dtype], "shape": list(array.shape)}
        header[name] = entry | {"data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    partial = path.with_name(path.name + PARTIAL)
    digest = hashlib.sha256()
    with partial.open("wb") as file:
        for head in (len(text).to_bytes(8, "little"), text):
            digest.update(head)
            file.write(head)
        for array in tensors.values():
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            digest.update(data)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


STATE = "quantize.json"
COPIED = (
    *("*.json", "*.model", "*.jinja", "*.tiktoken", "*.txt", "*.py", "tokenizer.model.v*"),
    *("*_*/config.json", "additional_chat_templates/*.jinja"),  # poolings, named templates
)
NOT_COPIED = (CONFIG, PARAMS, INDEX, PYTORCH.index, MISTRAL.index, STATE)


class Shard(msgspec.Struct):
    """A finished shard: its SHA-256, and the bytes of its tensors."""

    sha256: str
    tensors: dict[str, int]


class State(msgspec.Struct):
    """`quantize.json`."""

    request: dict[str, Any]
    shards: dict[str, Shard]


class Output:
    """The directory of a run.

    Raises:
        ConfigError: it holds something else, or the result of another request.
        WeightsError: it cannot be written.
    """

    def __init__(self, path: Path, request: Mapping[str, Any]) -> None:
        self.path = path
        wanted = json.loads(json.dumps(request))
        state = path / STATE
        if state.exists():
            self._state = checked(read_json(state), State, str(state))
            _check_same(path, self._state.request, wanted)
            return
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ConfigError(f"{path} exists and is not empty; name a new directory.")
        self._state = State(wanted, {})
        self._try(lambda: path.mkdir(parents=True, exist_ok=True))
        self._write_state()

    def is_finished(self, name: str) -> bool:
        """Whether the shard is there and whole."""
        shard, path = self._state.shards.get(name), self.path / name
        return shard is not None and path.is_file() and file_digest(path) == shard.sha256

    def check_space(self, needed: int) -> None:
        """Raises ConfigError if the disk has less than this many bytes, shards included."""
        free = shutil.disk_usage(self.path).free
        free += sum(one.stat().st_size for one in self.path.glob("*.safetensors"))
        if free < needed:
            raise ConfigError(
                f"{self.path} needs {needed >> 20} MiB, but its disk has {free >> 20} MiB free."
            )

    def write(self, name: str, tensors: Mapping[str, np.ndarray]) -> None:
        """Writes a shard. Raises WeightsError."""
        digest = self._try(lambda: write_tensors(self.path / name, tensors))
        sizes = {tensor: int(array.nbytes) for tensor, array in tensors.items()}
        self._state.shards[name] = Shard(digest, sizes)
        self._write_state()

    def finish(self, source: Path, config: Mapping[str, Any]) -> None:
        """Writes the index, the other files of the checkpoint, and config.json."""
        shards = sorted(self._state.shards.items())
        names = {tensor: name for name, shard in shards for tensor in shard.tensors}
        total = sum(sum(shard.tensors.values()) for _, shard in shards)
        index = {"metadata": {"total_size": total}, "weight_map": names}
        self._write_json(INDEX, index)
        for pattern in COPIED:
            for file in sorted(source.glob(pattern)):
                name = file.relative_to(source)
                if file.is_file() and str(name) not in NOT_COPIED:
                    self._try(lambda file=file, name=name: _copy(file, self.path / name))
        self._write_json(CONFIG, config)

    def _write_state(self) -> None:
        self._write_json(STATE, msgspec.to_builtins(self._state))

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        path = self.path / name
        partial = path.with_name(name + PARTIAL)
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        self._try(lambda: partial.write_text(text, encoding="utf-8"))
        self._try(lambda: partial.replace(path))

    def _try(self, write: Any) -> Any:
        try:
            return write()
        except OSError as error:
            raise WeightsError(f"{self.path} cannot be written: {error}.") from error


def _copy(file: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(file, target)


def _check_same(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for name in (*wanted, *found):
        if found.get(name) != wanted.get(name):
            raise ConfigError(
                f"{path} was begun with {name} {short(found.get(name))}, not "
                f"{short(wanted.get(name))}; give the same again, or name a new directory."
            )


SCALES = (".weight_scale", ".scales")  # ends of what every quantised matrix has


class ShardFile:
    """The tensors of one file, as they are stored."""

    def __init__(self, path: Path) -> None:
        self.location = path
        raw = RawFile(path)
        with safe_open(path, framework="numpy") as opened:
            self._tensors = {name: raw.read(name) for name in opened.keys()}  # noqa: SIM118

    def names(self) -> Collection[str]:
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    def dtype(self, name: str) -> str:
        return DTYPE_NAMES[self._tensors[name].dtype]

    def raw(self, name: str) -> np.ndarray:
        return self._tensors[name]

    def read_into(self, name: str, out: np.ndarray) -> None:
        out[...] = self._tensors[name]

    def describe(self, name: str) -> str:
        return f"{self.location}, tensor {name}"


class Renamed:
    """Tensors by other names.

    Args:
        name_in_file: the source's name for a new one.
    """

    def __init__(self, source: TensorSource, name_in_file: Callable[[str], str]) -> None:
        self.location = source.location
        self._source, self._name_in_file = source, name_in_file

    def names(self) -> Collection[str]:
        return self._source.names()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._source.shape(self._name_in_file(name))

    def read_into(self, name: str, out: np.ndarray) -> None:
        self._source.read_into(self._name_in_file(name), out)

    def describe(self, name: str) -> str:
        return self._source.describe(self._name_in_file(name))


def read_shard(
    path: Path, config: Mapping[str, Any], name_in_file: Callable[[str], str]
) -> TensorSource:
    """The numbers of a shard's tensors, by the names that the family declares.

    Args:
        config: `quantization_config`.
    """
    found = ShardFile(path)
    method = METHODS[method_of(config)](config, None)
    is_coded = any(name.endswith(end) for name in found.names() for end in SCALES)
    name = method_of(config)
    return Renamed(QuantizedSource(found, method, name) if is_coded else found, name_in_file)
