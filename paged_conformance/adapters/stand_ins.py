"""Stand-ins for modules that a foreign scheduler imports and does not use here.

A scheduler is plain Python, but its project imports models, kernels and devices beside it. With
`install` the modules under test are imported as they are, and of all others of the named packages a
stand-in is: its names are classes that take anything and do nothing, so annotations, decorators and
base classes work. What is *used* must be real: name it.
"""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Collection, Iterator, Sequence
from typing import Any


class _Meta(type):
    def __call__(cls, *args: Any, **named: Any) -> Any:
        """An instance; a name that decorates returns what it decorates."""
        decorates = len(args) == 1 and isinstance(args[0], type | types.FunctionType) and not named
        return (
            args[0] if decorates and "stands_in" in vars(cls) else super().__call__(*args, **named)
        )

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _named(name)

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __or__(cls, other: Any) -> Any:
        return cls

    def __ror__(cls, other: Any) -> Any:
        return cls


class Nothing(metaclass=_Meta):
    """Takes any arguments; a decorator returns what it decorates."""

    def __init__(self, *args: Any, **named: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __call__(self, *args: Any, **named: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not named else Nothing()

    def __enter__(self) -> "Nothing":
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _named(name: str) -> Any:
    """A class of this name, which itself is nothing: its subclasses are real."""
    return _Meta(name, (Nothing,), {"stands_in": True})


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _named(name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for each module of `packages` that is not one of `real`."""

    def __init__(
        self, packages: Collection[str], real: Sequence[str], but: Collection[str]
    ) -> None:
        self._packages, self._real, self._but = set(packages), tuple(real), set(but)

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.split(".")[0] not in self._packages:
            return None
        inside = any(name == one or name.startswith(one + ".") for one in self._real)
        if inside and name not in self._but:
            return None
        if any(one.startswith(name + ".") for one in self._real):
            return self._folder(name, path)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def _folder(self, name: str, path: Any) -> Any:
        """A package with real modules in it: its folder, without its own first file."""
        found = importlib.machinery.PathFinder.find_spec(name, path)
        if found is None:
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        spec.submodule_search_locations = found.submodule_search_locations
        return spec

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__spec__ is not None and module.__spec__.submodule_search_locations is None:
            module.__path__ = []


def install(packages: Collection[str], real: Sequence[str], but: Collection[str] = ()) -> None:
    """From now on imports of these packages are stand-ins, except for the real modules.

    Args:
        real: Modules and packages that are imported as they are.
        but: Modules of those packages that are not.
    """
    sys.meta_path.insert(0, _Finder(packages, real, but))
