"""The loader reads and packs a layer at a time, and leaves of experts as any others."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine.errors import OutOfMemoryError
from jax_engine.models.leaves import Leaf
from jax_engine.models.weight_loader import load_leaves
from jax_engine.weights.dense import Dense
from jax_engine.weights.format import VALUES, Matrix
from jax_engine.weights.panels import Panels
from jax_engine.weights.transforms import Stack
from tests.weights.arrays_source import ArraysSource
from tests.weights.int8 import Int8, rounded

L, X, OUT, IN = 3, 2, 5, 4
FLOAT32 = jnp.dtype(jnp.float32)
EXPERTS = Stack("layer", range(L), Stack("expert", range(X), "{layer}.{expert}"))
TENSORS = {
    f"{layer}.{expert}": rounded(
        np.random.default_rng(X * layer + expert).random((OUT, IN), np.float32) - np.float32(0.5)
    )
    for layer in range(L)
    for expert in range(X)
}


@dataclass(frozen=True)
class Watched(Int8):
    """Int8 that remembers what it was given to pack."""

    shapes: list[tuple[int, ...]] = field(default_factory=list, hash=False)

    def pack(self, values: np.ndarray, held: Mapping[str, np.ndarray], matrix: Matrix) -> None:
        self.shapes.append(values.shape)
        super().pack(values, held, matrix)


def test_a_format_packs_one_layer_at_a_time() -> None:
    form = Watched()
    leaf = Leaf(Matrix((L, X, OUT, IN), FLOAT32), "w", form)
    source = ArraysSource(TENSORS)
    held = load_leaves(source, {"experts": leaf}, {"experts": EXPERTS})["experts"]
    assert form.shapes == [(X, OUT, IN)] * L
    assert sorted(source.reads) == sorted(TENSORS)
    expected = np.stack(list(TENSORS.values())).reshape(L, X, OUT, IN)
    found = np.asarray(held["codes"]) * np.asarray(held["scale"])[..., None]
    np.testing.assert_array_equal(found, expected)


def test_what_is_held_unchanged_is_read_in_place() -> None:
    """The source writes to the array that becomes the device's."""
    places = []

    class Source(ArraysSource):
        def read_into(self, name: str, out: np.ndarray) -> None:
            places.append(out.ctypes.data)
            super().read_into(name, out)

    leaf = Leaf(Matrix((L, X, OUT, IN), FLOAT32), "w", Dense())
    array = load_leaves(Source(TENSORS), {"w": leaf}, {"w": EXPERTS})["w"][VALUES]
    assert min(places) == array.unsafe_buffer_pointer()
    np.testing.assert_array_equal(np.asarray(array).reshape(-1, OUT, IN), [*TENSORS.values()])


def test_experts_in_panels() -> None:
    leaf = Leaf(Matrix((L, X, OUT, IN), FLOAT32, gated=False), "w", Panels())
    (array,) = load_leaves(ArraysSource(TENSORS), {"w": leaf}, {"w": EXPERTS})["w"].values()
    assert array.shape[:2] == (L, X)
    alone = np.empty(array.shape[2:], np.float32)
    Panels().pack(TENSORS["2.1"], {"panels": alone}, leaf.matrix)
    np.testing.assert_array_equal(array[2, 1], alone)


def test_memory_that_runs_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(size: int) -> np.ndarray:
        raise MemoryError

    monkeypatch.setattr("jax_engine.models.huge_pages.empty", refuse)
    leaf = Leaf(Matrix((L, X, OUT, IN), FLOAT32), "w", Dense())
    with pytest.raises(OutOfMemoryError, match="the weights experts"):
        load_leaves(ArraysSource(TENSORS), {"experts": leaf}, {"experts": EXPERTS})
