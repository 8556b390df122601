"""What a path holds now is what a request gets; what the host keeps is bounded."""

import gc
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.errors import InvalidRequestError, WeightsError
from jax_engine.lora import adapter_registry
from jax_engine.lora.adapter import AdaptedModule, Adapter
from jax_engine.lora.adapter_registry import SETTLED_S, AdapterRegistry
from jax_engine.lora.request import LoRARequest
from tests.lora.adapters import CONFIG, modules, tensors_of, write_folder
from tests.support.some_adapters import MODULES, some_adapter, some_lora

LONG_AGO = 1_000_000  # seconds; what is written then has settled


def make(capacity: int = 2, rank: int = 16, now: float = LONG_AGO + 10.0) -> AdapterRegistry:
    return AdapterRegistry(modules, rank, capacity, clock=lambda: now)


def written(folder: Path, value: float, at: float = LONG_AGO) -> LoRARequest:
    """An adapter whose numbers begin with this one, written at some time."""
    tensors = tensors_of()
    first = next(iter(tensors.values()))
    first.reshape(-1)[0] = value
    write_folder(folder, tensors)
    for one in folder.iterdir():
        os.utime(one, (at, at))
    return LoRARequest(folder.name, 1, str(folder))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were read."""
    found: list[str] = []
    read = adapter_registry.read_adapter

    def counted(path: Any, *args: Any, **options: Any) -> Adapter:
        found.append(Path(path).name)
        return read(path, *args, **options)

    monkeypatch.setattr(adapter_registry, "read_adapter", counted)
    stamp = adapter_registry._file_stamp

    def size_and_time(path: Path) -> tuple[int, ...]:
        """The stamp without the inode and its change time, which `os.utime` cannot set."""
        return stamp(path)[2:4] + stamp(path)[3:4]

    monkeypatch.setattr(adapter_registry, "_file_stamp", size_and_time)
    return found


def test_files_are_read_once(tmp_path: Path, reads: list[str]) -> None:
    known, request = make(), written(tmp_path / "a", 1.0)
    first = known.adapter(request)
    assert known.adapter(request) is first
    assert known.adapter(LoRARequest("other", 9, f"{tmp_path}/./a")) is first
    assert reads == ["a"]


def test_files_that_changed_are_another_version(tmp_path: Path, reads: list[str]) -> None:
    known = make()
    first = known.adapter(written(tmp_path / "a", 1.0))
    second = known.adapter(written(tmp_path / "a", 2.0, LONG_AGO + 1))
    assert first.digest != second.digest and reads == ["a", "a"]
    assert known.adapter(written(tmp_path / "a", 1.0, LONG_AGO + 2)) is first, "it is still known"


def test_a_configuration_that_changed_is_another_version(tmp_path: Path, reads: list[str]) -> None:
    known, request = make(), written(tmp_path / "a", 1.0)
    first = known.adapter(request)
    config = tmp_path / "a" / "adapter_config.json"
    config.write_text(
        config.read_text().replace(f'"lora_alpha": {CONFIG["lora_alpha"]}', '"lora_alpha": 99')
    )
    os.utime(config, (LONG_AGO, LONG_AGO))
    assert known.adapter(request).digest != first.digest


def test_files_of_one_size_and_time_are_read_again_if_they_were_just_written(
    tmp_path: Path, reads: list[str]
) -> None:
    """A file system's clock ticks: the second version has the time of the first."""
    known = make(now=LONG_AGO + SETTLED_S / 2)
    first = known.adapter(written(tmp_path / "a", 1.0))
    second = known.adapter(written(tmp_path / "a", 2.0))
    assert first.digest != second.digest and reads == ["a", "a"]


def test_a_name_or_id_never_gives_another_adapter(tmp_path: Path, reads: list[str]) -> None:
    """vLLM goes by the id alone, and gives the first adapter that had it."""
    known = make()
    written(tmp_path / "a", 1.0), written(tmp_path / "b", 2.0)
    first = known.adapter(LoRARequest("same", 1, str(tmp_path / "a")))
    second = known.adapter(LoRARequest("same", 1, str(tmp_path / "b")))
    assert first.digest != second.digest
    assert known.adapter(LoRARequest("same", 1, str(tmp_path / "a"))) is first


def test_two_paths_of_equal_weights_are_one_adapter(tmp_path: Path, reads: list[str]) -> None:
    known = make()
    first = known.adapter(written(tmp_path / "a", 1.0))
    assert known.adapter(written(tmp_path / "b", 1.0)) is first
    assert len(known) == 1 and reads == ["a", "b"]


def test_the_one_that_was_asked_for_longest_ago_goes_first(
    tmp_path: Path, reads: list[str]
) -> None:
    known = make(capacity=2)
    a, b, c = (written(tmp_path / name, i) for i, name in enumerate("abc"))
    for one in (a, b, a, c, a):
        known.adapter(one)
    assert reads == ["a", "b", "c"] and len(known) == 2
    known.adapter(b)
    assert reads == ["a", "b", "c", "b"]


def test_what_a_request_holds_is_one_object_though_it_was_forgotten(
    tmp_path: Path, reads: list[str]
) -> None:
    known = make(capacity=1)
    a = written(tmp_path / "a", 1.0)
    held = known.adapter(a)
    known.adapter(written(tmp_path / "b", 2.0))
    assert known.adapter(a) is held and reads == ["a", "b", "a"]


@pytest.mark.slow
def test_a_thousand_adapters_leave_no_more_than_fit() -> None:
    known = AdapterRegistry(lambda: MODULES, 1, 8)
    for number in range(1000):
        one = AdaptedModule(
            "only", np.ones((1, 1), np.float32), np.full((1, 1), number, np.float32), 1.0
        )
        request = LoRARequest("a", number + 1, adapter=Adapter((one,)))
        known.add(request)
        del request, one
    gc.collect()
    assert len(known) == 8 == len(known.ids()) == len(known._alive)
    assert known.ids() == set(range(993, 1001))


def test_what_is_pinned_stays() -> None:
    known = AdapterRegistry(lambda: MODULES, 1, 2)
    assert not known.pin(1)
    for number in range(4):
        request = some_lora(number)
        assert request is not None
        assert known.add(request) == (True, some_adapter(number).digest)
        assert known.add(request) == (False, some_adapter(number).digest), "it is known"
        assert known.pin(1)
    assert known.ids() == {1, 4}
    assert known.remove(1) and not known.remove(1) and not known.pin(1)
    assert known.ids() == {4} and len(known) == 1


def test_an_id_may_come_to_mean_another_adapter() -> None:
    known = AdapterRegistry(lambda: MODULES, 1, 4)
    first, second = (LoRARequest("a", 1, adapter=some_adapter(i)) for i in range(2))
    added = [known.add(one)[0] for one in (first, second, second, first)]
    assert added == [True, True, False, True]
    assert known.add(LoRARequest("b", 2, adapter=some_adapter(0)))[0]
    assert known.remove(1) and len(known) == 2, "another id means it, too"
    assert known.remove(2) and len(known) == 1


def test_a_version_needs_no_files_while_it_is_in_memory(tmp_path: Path, reads: list[str]) -> None:
    known, request = make(capacity=2), written(tmp_path / "a", 1.0)
    first = known.adapter(request)
    version = replace(request, digest=first.digest)
    written(tmp_path / "a", 2.0, LONG_AGO + 1)
    assert known.adapter(version) is first and reads == ["a"]
    shutil.rmtree(tmp_path / "a")
    assert known.adapter(version) is first
    with pytest.raises(InvalidRequestError, match="no adapter at"):
        known.adapter(request)


def test_a_version_that_is_used_is_not_the_first_to_go(tmp_path: Path, reads: list[str]) -> None:
    known, names = make(capacity=2), "abc"
    a, b, c = (written(tmp_path / name, i) for i, name in enumerate(names))
    version = replace(a, digest=known.adapter(a).digest)
    known.adapter(b), known.adapter(version), known.adapter(c), known.adapter(a)
    assert reads == ["a", "b", "c"]


@pytest.mark.slow
def test_a_version_that_has_left_is_read_again_if_its_files_still_have_it(
    tmp_path: Path, reads: list[str]
) -> None:
    known, request = make(capacity=1), written(tmp_path / "a", 1.0)
    digest = known.adapter(request).digest
    version = replace(request, digest=digest)
    known.adapter(written(tmp_path / "b", 2.0))
    gc.collect()
    assert known.adapter(version).digest == digest and reads == ["a", "b", "a"]
    known.adapter(written(tmp_path / "b", 2.0))
    gc.collect()
    written(tmp_path / "a", 3.0, LONG_AGO + 1)
    words = r"lora_request 'a': .* has changed .* \(max_cpu_loras is 1\): load it again"
    with pytest.raises(InvalidRequestError, match=words):
        known.adapter(version)


def test_a_version_that_a_request_holds_needs_no_files(tmp_path: Path, reads: list[str]) -> None:
    known, request = make(capacity=1), written(tmp_path / "a", 1.0)
    held = known.adapter(request)
    known.adapter(written(tmp_path / "b", 2.0))
    shutil.rmtree(tmp_path / "a")
    assert known.add(replace(request, digest=held.digest)) == (True, held.digest)
    assert known.ids() == {1} and known.adapter(replace(request, digest=held.digest)) is held


def test_arrays_make_an_adapter(tmp_path: Path) -> None:
    tensors = tensors_of()
    from_files = make().adapter(LoRARequest("a", 1, str(write_folder(tmp_path / "a", tensors))))
    in_memory = LoRARequest("a", 1, lora_tensors=tensors, peft_config=CONFIG)
    assert make().adapter(in_memory).digest == from_files.digest


@pytest.mark.parametrize(
    ("request_of", "words"),
    [
        (lambda path: LoRARequest("mine", 1, str(path / "none")), "no adapter at"),
        (lambda path: LoRARequest("mine", 1, str(path)), "has no adapter_config.json"),
        (lambda path: LoRARequest("mine", 1, "x" * 5000), "File name too long"),
        (lambda path: some_lora(0), "the model has no module only that can be adapted"),
        (
            lambda path: LoRARequest("mine", 1, lora_tensors={"a": 1}, peft_config=CONFIG),  # type: ignore[dict-item]
            "expected a NumPy array",
        ),
        (
            lambda path: LoRARequest("mine", 1, lora_tensors=tensors_of(), peft_config={"r": 4.5}),
            "adapter_config.json",
        ),
    ],
)
def test_whatever_is_wrong_is_wrong_with_the_request(
    tmp_path: Path, request_of: Callable[[Path], LoRARequest], words: str
) -> None:
    request = request_of(tmp_path)
    with pytest.raises(InvalidRequestError, match=f"lora_request '{request.lora_name}': .*{words}"):
        make().adapter(request)


def test_a_rank_above_the_limit_is_refused(tmp_path: Path) -> None:
    request = LoRARequest("mine", 1, str(write_folder(tmp_path / "a", tensors_of())))
    assert make(rank=4).adapter(request).rank == 4
    for one in (request, LoRARequest("mine", 1, adapter=make().adapter(request))):
        with pytest.raises(InvalidRequestError, match=r"max_lora_rank \(3\)"):
            make(rank=3).adapter(one)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"b": np.ones((2, 1), np.float32)}, r"expected shape \(1, 1\)"),
        ({"a": np.full((1, 1), np.nan, np.float32)}, "numbers must be finite"),
        ({"a": np.ones((1, 1), np.int32)}, "dtype int32 is not supported"),
        ({"a": np.ones((1, 1), np.float64)}, "dtype float64 is not supported"),
        ({"scaling": float("inf")}, "the scaling of only must be finite, got inf"),
        ({"bias": np.ones(2, np.float32)}, r"expected shape \(1,\)"),
    ],
)
def test_an_adapter_that_does_not_suit_the_model(change: dict[str, Any], words: str) -> None:
    one = np.ones((1, 1), np.float32)
    given = {"name": "only", "a": one, "b": one, "scaling": 1.0} | change
    request = LoRARequest("mine", 1, adapter=Adapter((AdaptedModule(**given),)))
    known = AdapterRegistry(lambda: MODULES, 1, 4)
    with pytest.raises(InvalidRequestError, match=words):
        known.adapter(request)
    assert len(known) == 0


def test_files_that_change_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what was read: it is read again, and in the end refused."""
    request, read = written(tmp_path / "a", 1.0), adapter_registry.read_adapter
    times: list[int] = []

    def changing(*args: Any, **options: Any) -> Adapter:
        found = read(*args, **options)
        times.append(len(times))
        if len(times) < limit:
            written(tmp_path / "a", 2.0 + len(times), LONG_AGO + len(times))
        return found

    monkeypatch.setattr(adapter_registry, "read_adapter", changing)
    limit = 2
    assert make().adapter(request).modules[0].a.reshape(-1)[0] == 3.0 and len(times) == 2
    limit, times[:] = 99, []
    with pytest.raises(InvalidRequestError, match="changes while it is read"):
        make().adapter(request)
    assert len(times) == adapter_registry.TRIES


def test_many_threads_ask_for_many_adapters(tmp_path: Path) -> None:
    """Each gets what it asked for; whoever reads keeps nobody else from what is known."""
    known = make(capacity=3)
    requests = [written(tmp_path / str(i), float(i)) for i in range(5)]
    wanted = [make().adapter(one).digest for one in requests]
    wrong: list[Any] = []

    def ask(start: int) -> None:
        for turn in range(20):
            number = (start + turn) % 5
            try:
                if known.adapter(requests[number]).digest != wanted[number]:
                    wrong.append(number)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong and len(known) == 3


@given(asked=st.lists(st.integers(0, 5), max_size=30), capacity=st.integers(1, 4))
def test_what_is_kept_is_the_newest_ones(asked: list[int], capacity: int) -> None:
    known = AdapterRegistry(lambda: MODULES, 1, capacity)
    order: list[int] = []
    for number in asked:
        request = some_lora(number)
        assert request is not None and known.adapter(request) is some_adapter(number)
        order = [*(one for one in order if one != number), number][-capacity:]
        assert [*known._kept] == [some_adapter(one).digest for one in order]


def test_what_the_device_cannot_compute_is_refused_before_it_is_kept() -> None:
    def check(adapter: Adapter) -> None:
        raise WeightsError("its rows are not moved whole")

    kept = AdapterRegistry(lambda: MODULES, 16, 4, check=check)
    with pytest.raises(InvalidRequestError, match="its rows are not moved whole"):
        kept.adapter(some_lora(1))
    assert len(kept) == 0
