"""The adapters that an engine has in the host's memory, and how requests come by theirs.

An adapter is an immutable version of its files, which are a folder of PEFT's or a GGUF file.
Whoever asks for a path gets the version that lies there now: the files' sizes, times and inodes
tell whether they were read before. Requests that run keep the version with which they were
accepted, so replacing files waits for nobody and touches nobody.
"""

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from weakref import WeakValueDictionary

from jax_engine.errors import (
    ConfigError,
    InvalidRequestError,
    MissingPackageError,
    ModelNotFoundError,
    WeightsError,
)
from jax_engine.lora.adapter import Adapter
from jax_engine.lora.adapter_templates import TOKENIZER_FILES
from jax_engine.lora.adapter_tensors import check_fits
from jax_engine.lora.gguf_adapter import read_gguf
from jax_engine.lora.modules import Modules
from jax_engine.lora.peft import WEIGHTS, adapter_of_arrays, read_folder
from jax_engine.lora.peft_config import FILE
from jax_engine.lora.request import LoRARequest


def read_adapter(path: str | Path, modules: Modules, *, max_lora_rank: int) -> Adapter:
    """The adapter at a path, for the model with these modules. `adapter_of_arrays` reads none.

    Args:
        max_lora_rank: the largest rank that is accepted, of any module.

    Raises:
        ModelNotFoundError: nothing is there.
        ConfigError: the adapter's configuration asks for what is not computed.
        MissingPackageError: a GGUF file without the `gguf` package.
        WeightsError: a file is torn, or the tensors do not fit the model or the limit.
    """
    place = Path(path)
    if place.is_dir():
        return read_folder(place, modules, max_lora_rank)
    if not place.is_file():
        raise ModelNotFoundError(f"no adapter at {place}: give a folder of PEFT's or a GGUF file.")
    return read_gguf(place, modules, max_lora_rank)


# File systems note times in ticks of up to 10 ms: a file may change after it was read, and still
# look the same. So files that were written so shortly before they were read are read again.
SETTLED_S = 0.05
TRIES = 3  # to read files that change meanwhile

type Stamp = tuple[tuple[int, ...], ...]
"""Inode, size and times of each file."""


class _Version(NamedTuple):
    """What a path held: the files' stamp, and the digest of the adapter that was read."""

    stamp: Stamp
    digest: str


class AdapterRegistry:
    """Any thread may call it; files are read in the thread that asks.

    Args:
        modules: Makes the model's modules, when an adapter is first asked for.
        max_lora_rank: The largest rank that is accepted.
        capacity: Adapters that are kept. The one that was asked for longest ago goes first, but for
            those that were pinned. An adapter that a request holds is found as long as it does.
        clock: The time that files are stamped with, in seconds.
        check: Raises WeightsError for an adapter that the device cannot compute.
        check_folder: Raises an error for a folder with texts that are not the model's.
    """

    def __init__(
        self,
        modules: Callable[[], Modules],
        max_lora_rank: int,
        capacity: int,
        clock: Callable[[], float] = time.time,
        check: Callable[[Adapter], None] | None = None,
        check_folder: Callable[[Path], None] | None = None,
    ) -> None:
        self._make_modules = modules
        self._modules: Modules | None = None
        self._max_lora_rank, self._capacity = max_lora_rank, capacity
        self._clock, self._check, self._check_folder = clock, check, check_folder
        # Never held while files are read: who reads a large file delays nobody else.
        self._lock = Lock()
        self._kept: OrderedDict[str, Adapter] = OrderedDict()  # by digest, newest use last
        self._alive: WeakValueDictionary[str, Adapter] = WeakValueDictionary()
        self._versions: dict[str, _Version] = {}  # by path, of adapters that are kept
        self._named: dict[int, str] = {}  # digests of adapters that are kept, by the ids of `add`
        self._pinned: set[int] = set()

    def __len__(self) -> int:
        """How many adapters are kept."""
        return len(self._kept)

    def adapter(self, request: LoRARequest) -> Adapter:
        """The adapter that a request asks for, read if its files are new or have changed.

        Raises:
            InvalidRequestError: It cannot be read, does not suit the model, or has too high a rank.
        """
        with _named(request):
            if request.adapter is not None:
                return self._given(request.adapter)
            if request.lora_tensors is not None:
                config = request.peft_config or {}
                return self._keep(
                    adapter_of_arrays(
                        request.lora_tensors, config, self.modules, self._max_lora_rank
                    )
                )
            if request.digest is None:
                return self._at(request.lora_path)
            return self._version(request.lora_path, request.digest)

    def _version(self, path: str, digest: str) -> Adapter:
        """The version that is meant, from memory, else from its files.

        Raises:
            WeightsError: The files have another one now.
        """
        with self._lock:
            held = self._alive.get(digest)
            if digest in self._kept:
                self._kept.move_to_end(digest)
                return self._kept[digest]
        found = self._at(path) if held is None else self._keep(held)
        if found.digest != digest:
            raise WeightsError(
                f"{path} has changed since it was loaded, and the version that was loaded is no "
                f"longer in memory (max_cpu_loras is {self._capacity}): load it again."
            )
        return found

    @property
    def modules(self) -> Modules:
        """The model's modules."""
        if self._modules is None:
            self._modules = self._make_modules()
        return self._modules

    def add(self, request: LoRARequest) -> tuple[bool, str]:
        """Reads an adapter ahead, and notes its id as long as it is kept. Raises as `adapter`.

        Returns:
            Whether the id was new, or now means another adapter; and this adapter's digest.
        """
        digest = self.adapter(request).digest
        with self._lock:
            before = self._named.get(request.lora_int_id)
            if digest in self._kept:
                self._named[request.lora_int_id] = digest
        return before != digest, digest

    def remove(self, lora_id: int) -> bool:
        """Forgets an id, and its adapter if no other id means it; whether there was one.

        Requests that run with the adapter go on.
        """
        with self._lock:
            digest = self._named.pop(lora_id, None)
            self._pinned.discard(lora_id)
            if digest is not None and digest not in self._named.values():
                self._forget(digest)
        return digest is not None

    def pin(self, lora_id: int) -> bool:
        """Keeps the adapter of an id until it is removed; whether there is one."""
        with self._lock:
            if lora_id in self._named:
                self._pinned.add(lora_id)
            return lora_id in self._named

    def ids(self) -> set[int]:
        """The ids of `add` whose adapters are kept."""
        with self._lock:
            return set(self._named)

    def _given(self, adapter: Adapter) -> Adapter:
        with self._lock:
            known = self._alive.get(adapter.digest)
        if known is None:
            check_fits(adapter, self.modules, self._max_lora_rank)
        return self._keep(adapter)

    def _at(self, path: str) -> Adapter:
        """The adapter whose files lie at a path now.

        Raises:
            WeightsError: They go on changing while they are read; or as `read_adapter`.
        """
        place = os.path.realpath(path)
        for _ in range(TRIES):
            now, stamp = self._clock(), _stamp(Path(place))
            found = self._known(place, stamp)
            if found is not None:
                return found
            adapter = read_adapter(path, self.modules, max_lora_rank=self._max_lora_rank)
            if self._check_folder is not None and os.path.isdir(place):
                self._check_folder(Path(place))
            if _stamp(Path(place)) == stamp:
                settled = now - _newest(stamp) > SETTLED_S
                return self._keep(adapter, place, stamp if settled else None)
        raise WeightsError(f"{path} changes while it is read: try again when it is written.")

    def _known(self, place: str, stamp: Stamp) -> Adapter | None:
        with self._lock:
            version = self._versions.get(place)
            if version is None or version.stamp != stamp:
                return None
            self._kept.move_to_end(version.digest)
            return self._kept[version.digest]

    def _keep(self, adapter: Adapter, place: str = "", stamp: Stamp | None = None) -> Adapter:
        """The one object of this digest: the first that is still there. Raises as `check`."""
        if self._check is not None:
            self._check(adapter)
        with self._lock:
            one = self._alive.setdefault(adapter.digest, adapter)
            self._kept[one.digest] = one
            self._kept.move_to_end(one.digest)
            self._versions.pop(place, None)
            if stamp is not None:
                self._versions[place] = _Version(stamp, one.digest)
            self._evict()
            return one

    def _evict(self) -> None:
        fixed = {self._named[lora_id] for lora_id in self._pinned}
        free = [digest for digest in self._kept if digest not in fixed]
        for digest in free[: max(0, len(self._kept) - self._capacity)]:
            self._forget(digest)

    def _forget(self, digest: str) -> None:
        self._kept.pop(digest, None)
        self._versions = {at: one for at, one in self._versions.items() if one.digest != digest}
        self._named = {lora_id: one for lora_id, one in self._named.items() if one != digest}


@contextmanager
def _named(request: LoRARequest) -> Iterator[None]:
    """Whatever is wrong with an adapter is wrong with its request."""
    try:
        yield
    except (ConfigError, MissingPackageError, ModelNotFoundError, OSError, WeightsError) as error:
        raise InvalidRequestError(f"lora_request {request.lora_name!r}: {error}") from error


def _stamp(place: Path) -> Stamp:
    """What the files at a path look like; of those that are not there nothing."""
    if not place.is_dir():
        return (_file_stamp(place),)
    return tuple(_file_stamp(place / name) for name in (FILE, *WEIGHTS, *TOKENIZER_FILES))


def _file_stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except FileNotFoundError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _newest(stamp: Stamp) -> float:
    """When a file of the stamp was last changed, in seconds."""
    return max((max(one[-2:]) for one in stamp if one), default=0) / 1e9
