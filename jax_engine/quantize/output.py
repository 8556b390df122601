"""The new directory: shards, and how far an interrupted run has come.

`quantize.json` says what was asked for, and has the SHA-256 of each finished shard. A run with the
same request keeps those that are whole; another request is refused. Files are written under another
name and renamed, config.json last: a directory that has it is finished.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.file_schema import checked, read_json, short
from jax_engine.models.weight_files import INDEX
from jax_engine.quantize.safetensors_file import PARTIAL, file_digest, write_tensors

STATE = "quantize.json"
COPIED = (
    *("*.json", "*.model", "*.jinja", "*.tiktoken", "*.txt", "*.py"),
    *("*_*/config.json", "additional_chat_templates/*.jinja"),  # poolings, named templates
)
NOT_COPIED = ("config.json", INDEX, STATE)


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
        self._write_json("config.json", config)

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
