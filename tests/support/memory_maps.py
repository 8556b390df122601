"""Forgets compiled programs before a process of tests has more memory maps than Linux allows.

A compiled program takes three maps or more, and XLA crashes where it gets none. A process that runs
half of all tests compiles some twenty thousand programs; Linux allows 65,530 maps.
"""

import gc
import sys
from pathlib import Path

import pytest

MOST = 25_000
MAPS = Path("/proc/self/maps")


def num_maps() -> int:
    """How many mappings this process has; 0 where the system does not say."""
    return MAPS.read_bytes().count(b"\n") if MAPS.exists() else 0


class MemoryMaps:
    """A plugin: between two files of tests it looks.

    Args:
        most: From so many maps on programs are forgotten.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        if nextitem is not None and nextitem.path == item.path:
            return
        if num_maps() > self._most and "jax" in sys.modules:
            forget_programs()


def forget_programs() -> None:
    """All that JAX keeps, and the engines that tests share; what is needed is made again."""
    import jax

    builders = sys.modules.get("tests.support.builders")
    if builders is not None:
        builders._parts_for.cache_clear()
    gc.collect()
    jax.clear_caches()
    gc.collect()
