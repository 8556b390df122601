"""Numba's cache of compiled functions, in a folder that need not be writable.

Numba's own takes only a folder that it can write, and looks for another one where it cannot: a
filled cache in a read-only image would be passed over, and all be compiled again at each start.
This one reads what is there and keeps what it can.
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
_MAKERS: list[Any] = [dispatcher, ccallback]  # of caches; they know Numba's by its name alone
_UserProvided: Any = CompileResultCacheImpl._locator_classes[0]


class _Folder(_UserProvided):  # type: ignore[misc]
    """`numba.config.CACHE_DIR`, whether it can be written or not."""

    def ensure_cache_path(self) -> None:
        with suppress(OSError):  # saving says so
            os.makedirs(self.get_cache_path(), exist_ok=True)


class _Functions(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Folder,)


class KernelCache(FunctionCache):  # type: ignore[misc]
    """An entry that cannot be read is compiled again; one that cannot be kept costs a line."""

    _impl_class = _Functions
    says_lost = True  # once a process, for all functions

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # unpickling what is damaged raises anything
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
        """Saves, in the place of an index that cannot be read if there is one."""
        try:
            super().save_overload(sig, data)
        except OSError:
            raise
        except Exception:
            self.flush()
            super().save_overload(sig, data)


@contextmanager
def caching_in(folder: str) -> Iterator[None]:
    """Functions that are declared inside with `cache=True` are kept in this folder."""
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
