"""What mini-sglang's modules need before they can be imported without a GPU.

`PYTHONPATH` has the folder of the package `minisgl`, and PyTorch is installed.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from paged_conformance.adapters.foreign import bare_package


def load(name: str) -> Any:
    """A module of minisgl, whose own packages are not run and whose compiled parts are replaced."""
    if "minisgl" not in sys.modules:
        bare_package("minisgl")
        bare_package("minisgl.scheduler")
        utils = bare_package("minisgl.utils")
        for part in ("misc", "registry"):
            vars(utils).update(_public("minisgl.utils." + part))
        utils.init_logger = lambda *_, **__: None  # type: ignore[attr-defined]
        bare_package("minisgl.kernel", fast_compare_key=_equal_beginning)
    return import_module(name)


def _public(name: str) -> dict[str, Any]:
    try:
        module = import_module(name)
    except ModuleNotFoundError:  # an older version has no such file
        return {}
    return {key: value for key, value in vars(module).items() if not key.startswith("_")}


def _equal_beginning(left: Any, right: Any) -> int:
    """How many numbers at the beginning are equal; compiled in the original."""
    count = 0
    for mine, theirs in zip(left.tolist(), right.tolist(), strict=False):
        if mine != theirs:
            break
        count += 1
    return count


class HostTorch(ModuleType):
    """PyTorch whose memory is never pinned, which needs a GPU."""

    def __init__(self, torch: Any) -> None:
        super().__init__("torch")
        self._torch = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def empty(self, *sizes: Any, **options: Any) -> Any:
        options.pop("pin_memory", None)
        return self._torch.empty(*sizes, **options)

    def tensor(self, *data: Any, **options: Any) -> Any:
        options.pop("pin_memory", None)
        return self._torch.tensor(*data, **options)


def set_page_size(page_size: int) -> None:
    """The page size that the process has; caches that are made read it."""
    core = load("minisgl.core")
    if "page_size" in core.Context.__init__.__code__.co_varnames:
        context = core.Context.__new__(core.Context)
        context.page_size = page_size
        context._batch = None
        core._GLOBAL_CTX = context


def has_page_sizes() -> bool:
    """Whether this version has pages of more than one token."""
    import inspect

    return "page_size" in inspect.signature(load("minisgl.scheduler.cache").CacheManager).parameters
