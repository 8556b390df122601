"""Each transform against plain NumPy; the shapes it asks for; that it reads nothing unasked."""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.weights.transforms import (
    AddOne,
    Concatenate,
    Declaration,
    Heads,
    Stack,
    Transpose,
    regrouped,
    rope_halves,
    split,
    transform_of,
    ungrouped,
)
from tests.weights.arrays_source import ArraysSource

sizes = st.integers(1, 5)
shapes = st.lists(sizes, min_size=1, max_size=3).map(tuple)


def numbers(*shape: int) -> np.ndarray:
    """All different, so that a wrong place shows."""
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


def made(declared: Declaration, tensors: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> Any:
    """What a declaration makes, after it has asked for each tensor in its own shape."""
    transform, source = transform_of(declared), ArraysSource(tensors)
    wanted = dict(transform.tensors(shape, {}))
    assert wanted == {name: source.shape(name) for name in wanted}
    out = np.full(shape, np.nan, np.float32)
    transform.read_into(source, out, {})
    assert set(source.reads) == set(wanted)
    return out


@given(st.lists(sizes, min_size=1, max_size=4), shapes, st.data())
def test_concatenate(lengths: list[int], shape: tuple[int, ...], data: Any) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    parts = {
        f"part {i}": 1000 * i + numbers(*shape[:axis], length, *shape[axis + 1 :])
        for i, length in enumerate(lengths)
    }
    expected = np.concatenate(list(parts.values()), axis)
    found = made(Concatenate(list(parts), lengths, axis), parts, expected.shape)
    np.testing.assert_array_equal(found, expected)


@given(st.integers(1, 3), st.integers(1, 4), shapes)
def test_stacks_of_layers_and_experts(layers: int, experts: int, shape: tuple[int, ...]) -> None:
    tensors = {
        f"layers.{2 * i + 1}.experts.{j}": 100 * i + 1000 * j + numbers(*shape)
        for i in range(layers)
        for j in range(experts)
    }
    every = Stack("expert", range(experts), "layers.{layer}.experts.{expert}")
    stack = Stack("layer", range(1, 2 * layers, 2), every)
    expected = np.stack(list(tensors.values())).reshape(layers, experts, *shape)
    np.testing.assert_array_equal(made(stack, tensors, expected.shape), expected)


@given(shapes)
def test_transpose(shape: tuple[int, ...]) -> None:
    tensor = numbers(*shape)
    expected = tensor.swapaxes(-1, -2) if len(shape) > 1 else tensor
    found = made(Transpose("t"), {"t": tensor}, expected.shape)
    np.testing.assert_array_equal(found, expected)


@given(sizes, shapes)
def test_heads(heads: int, shape: tuple[int, ...]) -> None:
    """And a part of each head, turned around, as latent attention reads it."""
    each = numbers(heads, *shape, 2)
    joined = {"t": each.reshape(-1, *each.shape[2:])}
    np.testing.assert_array_equal(made(Heads("t"), joined, each.shape), each)
    first = split(Heads("t"), 0, 1, shape[0], axis=1)
    expected = each[:, :1].swapaxes(-1, -2)
    np.testing.assert_array_equal(made(Transpose(first), joined, expected.shape), expected)


@given(shapes, st.data())
def test_split(shape: tuple[int, ...], data: Any) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    start = data.draw(st.integers(0, shape[axis] - 1))
    stop = data.draw(st.integers(start + 1, shape[axis]))
    expected = np.take(numbers(*shape), range(start, stop), axis)
    declared = split("t", start, stop, shape[axis], axis=axis)
    found = made(declared, {"t": numbers(*shape)}, expected.shape)
    np.testing.assert_array_equal(found, expected)


@given(sizes, st.lists(st.integers(1, 3), min_size=1, max_size=3), sizes, st.booleans())
def test_ungrouped(groups: int, counts: list[int], size: int, experts: bool) -> None:
    """Kinds that stand group by group, cut apart and put one kind behind another."""
    lead = (2,) if experts else ()
    tensor = numbers(*lead, groups * sum(counts) * size, 3)
    grouped = tensor.reshape(*lead, groups, sum(counts) * size, 3)
    ends = np.cumsum(counts) * size
    kinds = [
        grouped[..., end - count * size : end, :].reshape(*lead, -1, 3)
        for end, count in zip(ends, counts, strict=True)
    ]
    declared = ungrouped("t", groups, counts, size, axis=len(lead))
    found = made(declared, {"t": tensor}, tensor.shape)
    np.testing.assert_array_equal(found, np.concatenate(kinds, -2))


@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 3), st.booleans(), st.booleans())
def test_rope_halves(heads: int, half: int, rest: int, is_bias: bool, behind: bool) -> None:
    """Row 2i becomes row i, and row 2i + 1 row i + half; rows that do not turn stay."""
    head_dim = 2 * half + 2 * rest
    shape = (heads * head_dim,) if is_bias else (heads * head_dim, 3)
    tensor = numbers(*shape)
    expected = tensor.copy()
    for head in range(heads):
        for i in range(half):
            at = head * head_dim + 2 * rest * behind
            expected[at + i] = tensor[at + 2 * i]
            expected[at + half + i] = tensor[at + 2 * i + 1]
    turning = 2 * half if rest else None
    declared = rope_halves("t", heads, head_dim, turning, start=2 * rest * behind)
    np.testing.assert_array_equal(made(declared, {"t": tensor}, shape), expected)


def test_one_is_added_in_float32() -> None:
    """And rounded once: in bfloat16 the tensor would be 2**-8, and the sum 1."""
    small = np.full(3, 2.0**-8 + 2.0**-17, np.float32)
    np.testing.assert_array_equal(made(AddOne("t"), {"t": small}, (3,)), 1 + small)
    narrow = np.empty(3, ml_dtypes.bfloat16)
    AddOne("t").read_into(ArraysSource({"t": small}), narrow, {})
    np.testing.assert_array_equal(narrow.astype(np.float32), 1 + 2.0**-7)


def test_less_one_is_the_reverse_of_plus_one() -> None:
    """Exactly so where a norm's scale is not tiny."""
    scales = np.array([0.5, 1.25, 2.0, 7.5], np.float32)
    np.testing.assert_array_equal(made(AddOne(AddOne("t", -1)), {"t": scales}, (4,)), scales)
    np.testing.assert_array_equal(made(AddOne("t", -1), {"t": scales}, (4,)), scales - 1)


@given(st.integers(1, 3), st.lists(sizes, min_size=1, max_size=3), st.integers(1, 2), st.booleans())
def test_regrouped_is_the_reverse_of_ungrouped(
    groups: int, counts: list[int], size: int, behind: bool
) -> None:
    axis = int(behind)
    shape = (2, groups * sum(counts) * size, 3)[1 - axis :]
    tensor = numbers(*shape)
    there = ungrouped("t", groups, counts, size, axis=axis)
    back = regrouped(there, groups, counts, size, axis=axis)
    np.testing.assert_array_equal(made(back, {"t": tensor}, shape), tensor)


def test_names_are_changed_in_every_part() -> None:
    inner = Concatenate(["a.{layer}", AddOne(Transpose("b.{layer}"))], (2, 2))
    every = Stack("layer", range(2), split(inner, 0, 4, 4))
    assert list(every.templates()) == ["a.{layer}", "b.{layer}"]
    other = every.renamed(str.upper).renamed(lambda name: name.replace("LAYER", "layer"))
    assert list(other.templates()) == ["A.{layer}", "B.{layer}"]
    tensors = {name: numbers(2, 2) for name in ("A.0", "A.1", "B.0", "B.1")}
    one = np.concatenate([numbers(2, 2), numbers(2, 2).T + 1])
    np.testing.assert_array_equal(made(other, tensors, (2, 4, 2)), np.stack([one, one]))
