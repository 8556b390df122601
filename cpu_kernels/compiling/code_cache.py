"""Numba's cache of compiled functions, in a folder that need not be writable.

Numba's own cache only uses a folder that it can write, and else looks for another one. It would
ignore a filled cache in a read-only image and compile everything again at each start. This cache
reads existing entries and writes new ones if it can.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numba
from numba.core import ccallback, dispatcher
from numba.core.caching import CompileResultCacheImpl, FunctionCache

logger = logging.getLogger("cpu_kernels.compile")
_MAKERS: list[Any] = [dispatcher, ccallback]  # modules that create caches by the class's name
_UserProvided: Any = CompileResultCacheImpl._locator_classes[0]


class _Folder(_UserProvided):  # type: ignore[misc]
    """`numba.config.CACHE_DIR`, whether it can be written or not."""

    def ensure_cache_path(self) -> None:
        with suppress(OSError):  # `save_overload` logs it
            os.makedirs(self.get_cache_path(), exist_ok=True)


class _Functions(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Folder,)


class KernelCache(FunctionCache):  # type: ignore[misc]
    """Compiles unreadable entries again, and logs one line if entries cannot be saved."""

    _impl_class = _Functions
    says_lost = True  # whether the next failure to save is logged: the process's first

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # unpickling a damaged entry may raise anything
            logger.debug("%s: no entry that can be read: %r", self.cache_path, error)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            self._replace(sig, data)
        except OSError as error:
            if KernelCache.says_lost:
                KernelCache.says_lost = False
                logger.warning(
                    "the kernels compiled for this CPU cannot be kept (%s): each start compiles "
                    "them again, which takes some 10 s. NUMBA_CACHE_DIR or XDG_CACHE_HOME names "
                    "a folder that can be written.",
                    error,
                )

    def _replace(self, sig: Any, data: Any) -> None:
        """Saves an entry; an unreadable index is replaced."""
        try:
            super().save_overload(sig, data)
        except OSError:
            raise
        except Exception:
            self.flush()
            super().save_overload(sig, data)


@contextmanager
def caching_in(folder: str) -> Iterator[None]:
    """Caches functions that the block declares with `cache=True` in this folder."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = folder
    for module in _MAKERS:
        module.FunctionCache = KernelCache
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before
        for module in _MAKERS:
            module.FunctionCache = FunctionCache
