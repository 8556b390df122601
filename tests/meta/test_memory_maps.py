"""What keeps a process of tests below the limit of memory maps."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.support import memory_maps
from tests.support.memory_maps import MemoryMaps, forget_programs, num_maps


@pytest.mark.slow
@pytest.mark.skipif(num_maps() == 0, reason="nobody says how many maps a process has")
def test_programs_that_are_forgotten_leave_no_maps() -> None:
    before = num_maps()
    for i in range(1, 60):
        jax.jit(lambda x, i=i: (x * i).sum())(jnp.ones(i))
    compiled = num_maps()
    forget_programs()
    assert compiled > before + 60 and num_maps() < compiled - 60


@pytest.mark.parametrize(
    ("maps", "following", "forgets"),
    [(11, "other", True), (11, None, True), (11, "same", False), (10, "other", False)],
)
def test_it_looks_between_two_files(
    maps: int, following: str | None, forgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten: list[bool] = []
    monkeypatch.setattr(memory_maps, "num_maps", lambda: maps)
    monkeypatch.setattr(memory_maps, "forget_programs", lambda: forgotten.append(True))
    following_item: Any = following and SimpleNamespace(path=following)
    MemoryMaps(most=10).pytest_runtest_teardown(SimpleNamespace(path="same"), following_item)  # type: ignore[arg-type]
    assert bool(forgotten) == forgets
