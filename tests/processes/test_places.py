"""Which cores and GPUs each of several engines gets."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.errors import ConfigError
from jax_engine.processes import placement as module
from jax_engine.processes.placement import (
    ANYWHERE,
    VARIABLE,
    VISIBLE,
    places,
    split_cores,
    visible_gpus,
)


@given(st.lists(st.integers(0, 500), unique=True).map(sorted), st.integers(1, 20))
def test_cores_are_shared_out(cores: list[int], count: int) -> None:
    found = split_cores(cores, count)
    assert len(found) == count
    if len(cores) < count:
        assert not any(found), "each may run anywhere"
        return
    assert [core for own in found for core in own] == cores, "each core once, neighbours together"
    sizes = [len(own) for own in found]
    assert min(sizes) >= 1 and max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("environment", "count", "gpus"),
    [
        ({}, 0, []),
        ({}, 2, ["0", "1"]),
        ({VISIBLE: "3, 1"}, 4, ["3", "1"]),
        ({VISIBLE: "GPU-a,GPU-b"}, 2, ["GPU-a", "GPU-b"]),
        ({VISIBLE: ""}, 4, []),
        ({VISIBLE: "0"}, 0, []),
        ({"JAX_PLATFORMS": "cpu"}, 4, []),
        ({"JAX_PLATFORMS": "cuda,cpu"}, 1, ["0"]),
        ({"JAX_PLATFORMS": ""}, 1, ["0"]),
    ],
)
def test_gpus_are_those_that_jax_would_see(
    environment: dict[str, str], count: int, gpus: list[str]
) -> None:
    assert visible_gpus(environment, count) == gpus


@pytest.fixture
def four_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        (tmp_path / f"0000:{number}").touch()
    monkeypatch.setattr(module, "GPUS", tmp_path)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.delenv(VISIBLE, raising=False)


@pytest.mark.usefixtures("four_gpus")
def test_each_engine_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.environment for one in places(3)] == [{VISIBLE: str(i)} for i in range(3)]
    monkeypatch.setenv(VISIBLE, "2,3")
    assert [one.environment for one in places(2)] == [{VISIBLE: "2"}, {VISIBLE: "3"}]
    monkeypatch.delenv(VISIBLE)
    assert [one.environment for one in places(2, 2)] == [{VISIBLE: "0,1"}, {VISIBLE: "2,3"}]
    assert places(1) == [ANYWHERE], "one engine sees all that there are"


def test_without_a_driver_there_are_no_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GPUS", tmp_path / "none")
    for name in ("JAX_PLATFORMS", VISIBLE, VARIABLE):
        monkeypatch.delenv(name, raising=False)
    assert [one.environment for one in places(2)] == [{}, {}]


@pytest.mark.usefixtures("four_gpus")
def test_more_engines_than_gpus_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^data_parallel_size must be at most the number of GPUs \(4\), got 5$"
    ):
        places(5)
    with pytest.raises(
        ConfigError, match=r"number of GPUs \(4\) over tensor_parallel_size \(2\), got 3$"
    ):
        places(3, 2)


@pytest.mark.parametrize(
    ("said", "count", "each", "wanted"),
    [
        ("0|1", 2, 1, [([0], "0"), ([1], "1")]),
        ("6,7|0-1|2|4-5", 2, 2, [([0, 1, 6, 7], "6,7|0-1"), ([2, 4, 5], "2|4-5")]),
        ("nobind", 2, 3, [([], None)] * 2),
        (" auto ", 2, 4, [([0, 1, 2, 3], None), ([4, 5, 6, 7], None)]),
        ("", 3, 1, [([0, 1], None), ([2, 3, 4], None), ([5, 6, 7], None)]),
    ],
)
def test_the_variable_names_the_cores_of_all_ranks(
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    count: int,
    each: int,
    wanted: list[tuple[list[int], str | None]],
) -> None:
    """Each engine gets its part: the process that it runs in reads it again."""
    monkeypatch.setattr(module, "own_cores", lambda: list(range(8)))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv(VARIABLE, said)
    found = places(count, each)
    assert [(one.cores, one.environment.get(VARIABLE)) for one in found] == wanted
    assert places(1, each) == [ANYWHERE]


def test_the_variable_for_another_number_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "own_cores", lambda: list(range(8)))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv(VARIABLE, "0|1")
    with pytest.raises(ConfigError, match=r"must name the cores of 4 ranks.*got '0\|1' with 2"):
        places(2, 2)
