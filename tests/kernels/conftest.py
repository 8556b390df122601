"""Which kernels the property suite runs on, and fixtures of the kernel tests."""

from collections.abc import Iterator
from pathlib import Path

import jax
import jaxtyping
import pytest

from tests.kernels.kernel import load, ours

MAPS = Path("/proc/self/maps")
MOST_MAPS = 30_000  # of 65,530 that Linux allows a process (vm.max_map_count)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The property suite runs for every kernel: those asked for, or all of ours."""
    if metafunc.definition.get_closest_marker("conformance"):
        paths = metafunc.config.getoption("--kernel")
        kernels = [load(path) for path in paths] or ours()
        metafunc.parametrize("kernel", kernels, ids=lambda kernel: kernel.name)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--kernel` nothing but the property suite runs."""
    if config.getoption("--kernel"):
        others = [item for item in items if not item.get_closest_marker("conformance")]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


@pytest.fixture(autouse=True)
def room_for_programs() -> Iterator[None]:
    """Lets go of the suite's programs in time: with too many of them XLA crashes."""
    yield
    if MAPS.exists() and len(MAPS.read_bytes().splitlines()) > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture
def unchecked_shapes() -> Iterator[None]:
    """Annotations are not checked, as in production: the functions' own errors come through."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
