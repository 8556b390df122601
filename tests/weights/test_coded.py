"""Rows of codes through the format for XLA: held in one kind, multiplied, and looked up."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.errors import WeightsError
from jax_engine.weights.code_sources import is_ordered, kinds_of
from jax_engine.weights.coded import Coded, common_kind
from jax_engine.weights.codes import INT8, Kind, numbers
from jax_engine.weights.format import Matrix, Weight
from jax_engine.weights.row_moves import moves_rows
from jax_engine.weights.transforms import (
    AddOne,
    Concatenate,
    Heads,
    Rows,
    Stack,
    Tensor,
    Transform,
    Transpose,
)
from tests.weights.coded_rows import FP4, KINDS, NIBBLES, RowsSource, random_rows

TABLES = st.sampled_from(range(len(KINDS)))


def loaded(
    source: RowsSource, made_of: Transform, form: Coded, shape: tuple[int, ...], gated: bool = False
) -> Weight:
    """A weight read into memory that held other numbers."""
    matrix = Matrix(shape, jnp.dtype(jnp.float32), gated)
    held = {name: np.full(a.shape, 7, a.dtype) for name, a in form.arrays(matrix).items()}
    form.load(source, made_of, {}, held, matrix)
    arrays = {name: jnp.asarray(a) for name, a in held.items()}
    return Weight(arrays, matrix=matrix, format=form)


def form_of(source: RowsSource, used: Any, ordered: bool = False) -> Coded:
    kind = common_kind(source.kinds[number] for number in used)
    assert kind is not None
    return Coded(source.kinds, kind, ordered)


@given(TABLES, st.sampled_from((1, 33)), st.sampled_from((1, 16, 77, 256)), st.integers(0, 99))
def test_rows_stand_for_the_numbers_of_the_source(
    kind: int, rows: int, size: int, seed: int
) -> None:
    source = RowsSource({"w": random_rows((rows,), size, KINDS, {kind}, seed)}, KINDS)
    weight = loaded(source, Tensor("w"), form_of(source, {kind}), (rows, size))
    expected = numbers(source.tensors["w"], KINDS)
    ids = np.arange(rows + 1)
    found = weight.take_rows(jnp.asarray(ids, jnp.int32))
    np.testing.assert_array_equal(found, expected[ids.clip(max=rows - 1)])
    x = np.random.default_rng(seed).integers(-8, 9, (3, size)).astype(np.float32)
    out = weight.matmul(jnp.asarray(x), out_dtype=jnp.dtype(jnp.float32))
    np.testing.assert_allclose(out, x @ expected.T, rtol=1e-5, atol=1e-3)


MIXES = [{0, 1}, {3, 6}, {0, 5, 6}, {2, 7}, {1, 3}, {0, 1, 2, 3, 5, 6, 7}]


@pytest.mark.parametrize("used", MIXES, ids=str)
def test_a_matrix_of_several_kinds_is_held_in_one(used: set[int]) -> None:
    tensors = {str(kind): random_rows((5,), 256, KINDS, {kind}, kind) for kind in used}
    source, made_of = RowsSource(tensors, KINDS), Concatenate(tuple(tensors), (5,) * len(used))
    weight = loaded(source, made_of, form_of(source, used), (5 * len(used), 256))
    expected = np.concatenate([numbers(rows, KINDS) for rows in tensors.values()])
    every = jnp.arange(len(expected), dtype=jnp.int32)
    np.testing.assert_array_equal(weight.take_rows(every), expected)


def test_kinds_with_nothing_in_common() -> None:
    """A table of fractions and whole numbers; groups that do not fit; activations of one only."""
    assert common_kind([Kind(FP4, 32), Kind(INT8, 32)]) is None
    assert common_kind([Kind(NIBBLES, 32), Kind(NIBBLES, 48)]) is None
    assert common_kind([Kind(INT8, 64), Kind(INT8, 64, activations=INT8)]) is None
    assert common_kind([Kind(FP4, 64), Kind(FP4, 32)]) == Kind(FP4, 32)


def test_experts_and_heads() -> None:
    """An axis before the rows; a product of each expert's rows."""
    kind = {0}
    tensors = {f"{i}": random_rows((6,), 64, KINDS, kind, i) for i in range(2)}
    source = RowsSource(tensors, KINDS)
    stack = Stack("expert", range(2), "{expert}")
    weight = loaded(source, stack, form_of(source, kind), (2, 6, 64))
    expected = np.stack([numbers(rows, KINDS) for rows in tensors.values()])
    x = np.random.default_rng(0).integers(-4, 5, (5, 64)).astype(np.float32)
    out = weight.grouped_matmul(jnp.asarray(x), None, jnp.array([0, 2, 5], jnp.int32))
    each = [x[:2] @ expected[0].T, x[2:] @ expected[1].T]
    np.testing.assert_allclose(out, np.concatenate(each), rtol=1e-5, atol=1e-3)
    both = np.stack([x, x])
    out = weight.batched_matmul(jnp.asarray(both))
    np.testing.assert_allclose(out, both @ expected.swapaxes(1, 2), rtol=1e-5, atol=1e-3)


def test_columns_in_another_order() -> None:
    order = np.random.default_rng(1).permutation(64)
    rows = random_rows((7,), 64, KINDS, {1}, 5)
    source = RowsSource({"w": rows, "v": rows}, KINDS, {"w": order})
    assert is_ordered(source, Tensor("w"), (7, 64), {})
    assert not is_ordered(source, Tensor("v"), (7, 64), {})
    form = form_of(source, {1}, ordered=True)
    plain = np.empty((7, 64), np.float32)
    x = np.random.default_rng(2).integers(-4, 5, (3, 64)).astype(np.float32)
    for name in "wv":
        source.read_into(name, plain)
        weight = loaded(source, Tensor(name), form, (7, 64))
        out = weight.matmul(jnp.asarray(x), out_dtype=jnp.dtype(jnp.float32))
        np.testing.assert_allclose(out, x @ plain.T, rtol=1e-5, atol=1e-3)
    with pytest.raises(WeightsError, match=r"tensor v: its columns .* than those of w"):
        loaded(source, Concatenate(("w", "v"), (7, 7)), form, (14, 64))


def test_which_transforms_move_whole_rows() -> None:
    order = np.arange(3)
    assert moves_rows(Concatenate(("a", Rows("b", order, 3)), (3, 3)), 1)
    assert moves_rows(Stack("x", range(2), Concatenate("ab")), 2)
    assert moves_rows(Rows(Stack("x", range(2), "a"), order, 3, axis=1), 2)
    assert moves_rows(Heads("a"), 2)
    assert not moves_rows(Concatenate("ab", axis=1), 1)
    assert not moves_rows(Concatenate("ab", axis=-1), 1)
    assert not moves_rows(Rows("a", order, 3, axis=1), 1)
    assert not moves_rows(Transpose("a"), 1)
    assert not moves_rows(AddOne("a"), 1)
    assert not moves_rows(Tensor("a"), 0)


def test_kinds_of_a_matrix() -> None:
    tensors = {str(kind): random_rows((5,), 64, KINDS, {kind}, kind) for kind in (0, 5)}
    source = RowsSource(tensors, KINDS)
    both = Concatenate(("0", "5"), (5, 5))
    assert kinds_of(source, both, (10, 64), {}) == {KINDS[0], KINDS[5]}
    assert kinds_of(source, AddOne("0"), (5, 64), {}) is None
    source.kind = lambda name: KINDS[0] if name == "0" else None  # type: ignore[method-assign]
    assert kinds_of(source, both, (10, 64), {}) is None
