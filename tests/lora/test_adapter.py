"""An adapter is a value: its digest is that of what it computes, and nobody can change it."""

import copy
import dataclasses
import hashlib
import os
import pickle
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from jax_engine.errors import WeightsError
from jax_engine.lora.adapter import AdaptedModule, Adapter
from tests.lora.adapters import K1, Q0, read, tensors_of

DTYPES = st.sampled_from([np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)])


@st.composite
def modules(draw: st.DrawFn, name: str) -> AdaptedModule:
    """Small enough that two often are the same."""
    rank, size, out = (draw(st.integers(1, 2)) for _ in range(3))
    dtype = draw(DTYPES)
    numbers = st.sampled_from([0.0, 1.0])

    def array(*shape: int) -> np.ndarray:
        return draw(arrays.arrays(np.float32, shape, elements=numbers)).astype(dtype)

    bias = array(out) if draw(st.booleans()) else None
    return AdaptedModule(name, array(rank, size), array(out, rank), draw(numbers), bias)


ADAPTERS = st.lists(st.sampled_from(["m", "n", "mn"]), min_size=1, unique=True).flatmap(
    lambda names: st.tuples(*map(modules, names)).map(Adapter)
)


def computed(adapter: Adapter) -> Any:
    """All that an adapter computes with."""
    return [
        (one.name, one.scaling, [(a.dtype, a.shape, a.tobytes()) for a in one.arrays])
        for one in adapter.modules
    ]


@given(ADAPTERS, ADAPTERS)
def test_digests_are_equal_if_weights_and_scaling_are(one: Adapter, other: Adapter) -> None:
    assert (one.digest == other.digest) == (computed(one) == computed(other))
    assert (one == other) == (one.digest == other.digest)
    assert one != other or hash(one) == hash(other)


@given(ADAPTERS, st.data())
def test_the_order_of_modules_does_not_matter(adapter: Adapter, data: st.DataObject) -> None:
    again = Adapter(tuple(data.draw(st.permutations(adapter.modules))))
    assert again.digest == adapter.digest
    assert [one.name for one in again.modules] == [one.name for one in adapter.modules]


@given(st.data())
def test_one_number_makes_another_digest(data: st.DataObject) -> None:
    tensors = tensors_of()
    name = data.draw(st.sampled_from(sorted(tensors)))
    changed = tensors[name].copy()
    place = data.draw(st.integers(0, changed.size - 1))
    changed.reshape(-1)[place] = np.nextafter(changed.reshape(-1)[place], np.float32(np.inf))
    assert read(tensors | {name: changed}).digest != read(tensors).digest


def test_what_a_digest_does_not_depend_on() -> None:
    adapter = read()
    assert adapter.digest == read(base_model_name_or_path="other", r=4, lora_dropout=0.0).digest
    assert adapter.digest == read(lora_alpha=4, use_rslora=True).digest  # 4 / sqrt(4) = 8 / 4


def test_the_digest_of_an_adapter_by_hand() -> None:
    """The same in another process and another version, or caches that outlive them are lost."""
    one = AdaptedModule("mod", np.ones((1, 2), np.float32), np.zeros((3, 1), np.float32), 0.5)
    parts = [
        *(struct.pack("<Q", 3), b"mod", struct.pack("<d", 0.5), b"\x02"),
        *(struct.pack("<Q", 7), b"float32", b"\x02", struct.pack("<QQ", 1, 2)),
        struct.pack("<ff", 1.0, 1.0),
        *(struct.pack("<Q", 7), b"float32", b"\x02", struct.pack("<QQ", 3, 1)),
        struct.pack("<fff", 0.0, 0.0, 0.0),
    ]
    own = hashlib.sha256(b"".join(parts)).digest()
    assert Adapter((one,)).digest == hashlib.sha256(own).hexdigest()


@pytest.mark.parametrize("cores", [1, 2, 3, 64])
def test_cores_share_the_work_and_not_the_digest(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = tuple(
        AdaptedModule(f"m{i}", np.full((1, 2), i, np.float32), np.ones((3, 1), np.float32), 1.0)
        for i in range(5)
    )
    expected = Adapter(modules).digest
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert Adapter(modules).digest == expected
    assert Adapter(modules[:4]).digest != expected


@pytest.mark.parametrize(
    "change",
    [
        {"name": "n"},
        {"scaling": 0.25},
        {"scaling": -0.5},
        {"a": np.ones((1, 2), np.float16)},
        {"a": np.ones((1, 3), np.float32)},
        {"bias": np.zeros(1, np.float32)},
    ],
)
def test_what_a_digest_depends_on(change: dict[str, Any]) -> None:
    one = AdaptedModule("m", np.ones((1, 2), np.float32), np.ones((1, 1), np.float32), 0.5)
    assert Adapter((one,)) != Adapter((dataclasses.replace(one, **change),))


def test_nobody_can_write_to_it() -> None:
    tensors = tensors_of()
    adapter = read(tensors)
    before = computed(adapter)
    for array in tensors.values():
        array[...] = 0
    assert computed(adapter) == before
    for module in adapter.modules:
        for array in module.arrays:
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.flags.writeable = True
    with pytest.raises(dataclasses.FrozenInstanceError):
        adapter.digest = ""  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        adapter.modules[0].scaling = 1.0  # type: ignore[misc]


def test_sizes() -> None:
    adapter = read(tensors_of((Q0, K1), ranks={K1: 2}), rank_pattern={K1: 2})
    assert adapter.rank == 4
    assert adapter.num_bytes == 4 * (4 * 32 + 32 * 4 + 2 * 32 + 16 * 2)


def test_adapters_that_are_none() -> None:
    with pytest.raises(WeightsError, match="no modules"):
        Adapter(())
    one = read().modules[0]
    with pytest.raises(WeightsError, match=f"{one.name} twice"):
        Adapter((one, one))


@given(ADAPTERS)
def test_a_pickled_adapter_is_the_same_and_nobody_can_write_to_it(adapter: Adapter) -> None:
    for sent in (pickle.loads(pickle.dumps(adapter)), copy.deepcopy(adapter)):
        assert computed(sent) == computed(adapter) and sent.digest == adapter.digest
        assert sent == adapter and hash(sent) == hash(adapter)
        for module in sent.modules:
            assert dataclasses.is_dataclass(module)
            for array in module.arrays:
                with pytest.raises(ValueError, match="WRITEABLE"):
                    array.flags.writeable = True


def test_a_pickled_adapter_is_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = pickle.dumps(read())
    monkeypatch.setattr(hashlib, "sha256", None)
    assert pickle.loads(sent).rank == 4
