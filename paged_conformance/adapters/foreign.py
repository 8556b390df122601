"""Parts of a foreign package, without all that its `__init__` imports.

An engine's managers are plain Python, while its package needs a GPU's libraries as soon as it is
imported. So packages are put into `sys.modules` empty, with the place of their files, and modules
that are not there are replaced by the few names that a manager uses.
"""

import hashlib
import importlib
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any


def bare_package(name: str, **names: Any) -> ModuleType:
    """A package whose `__init__` is not run; its submodules can be imported.

    Raises:
        ModuleNotFoundError: It is not on `sys.path`.
    """
    if name in sys.modules:
        return sys.modules[name]
    parent, _, last = name.rpartition(".")
    path = bare_package(parent).__path__ if parent else None
    spec = importlib.machinery.PathFinder.find_spec(name, path)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"no package {name}: put the folder that has it into PYTHONPATH")
    module = sys.modules[name] = ModuleType(name)
    module.__path__ = list(spec.submodule_search_locations)
    vars(module).update(names)
    if parent:
        setattr(sys.modules[parent], last, module)
    return module


def stand_in(name: str, **names: Any) -> None:
    """A module of these names, unless the real one can be imported."""
    if name in sys.modules:
        return
    try:
        if importlib.util.find_spec(name) is not None:
            return
    except (ModuleNotFoundError, ValueError):
        pass
    module = sys.modules[name] = ModuleType(name)
    vars(module).update(names)


class Digest:
    """In place of `xxhash.xxh64`: another hash of 64 bits."""

    def __init__(self, data: bytes = b"") -> None:
        self._hash = hashlib.blake2b(data, digest_size=8)

    def update(self, data: bytes) -> None:
        self._hash.update(data)

    def intdigest(self) -> int:
        return int.from_bytes(self._hash.digest(), "little")
