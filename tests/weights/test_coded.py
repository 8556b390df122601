"""Rows of codes through the formats for XLA and for a CPU's kernels: multiplied and looked up."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpu_kernels.compiling import availability
from cpu_kernels.simd.micro_kernel import COLUMNS
from jax_engine.errors import WeightsError
from jax_engine.operations import coded_format
from jax_engine.weights.code_sources import is_ordered, parts_of_rows
from jax_engine.weights.coded import Coded, common_kind
from jax_engine.weights.codes import INT8, Kind, numbers
from jax_engine.weights.dense import Dense
from jax_engine.weights.format import Matrix, Weight, WeightFormat
from jax_engine.weights.panels import CodedPanels, Panels, most_bytes
from jax_engine.weights.transforms import (
    AddOne,
    Columns,
    Concatenate,
    Heads,
    Rows,
    Stack,
    Tensor,
    Transform,
    Transpose,
    elements,
    moves_rows,
    transform_of,
)
from jax_engine.weights.w8a8 import IndexedW8A8Dense, W8A8Dense, W8A8Panels
from tests.weights.coded_rows import FP4, KINDS, NIBBLES, RowsSource, random_rows
from tests.weights.test_formats import one_layer

TABLES = st.sampled_from(range(len(KINDS)))


def loaded(
    source: RowsSource,
    made_of: Transform,
    form: WeightFormat,
    shape: tuple[int, ...],
    gated: bool = False,
) -> Weight:
    """A weight read into memory that held other numbers."""
    matrix = Matrix(shape, jnp.dtype(jnp.float32), gated)
    held = {name: np.full(a.shape, 7, a.dtype) for name, a in form.arrays(matrix).items()}
    for index, part, words in elements(made_of):
        here = {name: array[index] for name, array in held.items()}
        whole = matrix._replace(shape=shape[len(index) :])
        form.load(source, part, words, here, whole)
    arrays = {name: jnp.asarray(a) for name, a in held.items()}
    return Weight(arrays, matrix=matrix, format=form)


def form_of(
    source: RowsSource,
    plain: WeightFormat,
    made_of: Transform,
    shape: tuple[int, ...],
    *,
    gated: bool = False,
    ordered: bool = False,
) -> WeightFormat:
    """The format that a loader would choose in place of one for numbers."""
    rows = parts_of_rows(source, made_of, shape, {})
    assert rows is not None
    used = {kind for kind, _ in rows}
    kinds = tuple(kind for kind in source.kinds if kind in used)
    matrix = Matrix(shape, jnp.dtype(jnp.float32), gated)
    form = coded_format(kinds, [rows], matrix, plain, ordered=ordered)
    assert isinstance(form, CodedPanels if isinstance(plain, Panels) else Coded)
    return form


both = pytest.mark.parametrize("plain", [Dense(), Panels()], ids=["xla", "kernels"])


@both
@given(TABLES, st.sampled_from((1, 33)), st.sampled_from((1, 16, 77, 256)), st.integers(0, 99))
def test_rows_stand_for_the_numbers_of_the_source(
    plain: WeightFormat, kind: int, rows: int, size: int, seed: int
) -> None:
    source = RowsSource({"w": random_rows((rows,), size, KINDS, {kind}, seed)}, KINDS)
    form = form_of(source, plain, Tensor("w"), (rows, size))
    weight = loaded(source, Tensor("w"), form, (rows, size))
    expected = numbers(source.tensors["w"], KINDS)
    ids = np.arange(rows + 1)
    found = weight.format.take_rows(weight, jnp.asarray(ids, jnp.int32))
    np.testing.assert_array_equal(found, expected[ids.clip(max=rows - 1)])
    x = np.random.default_rng(seed).integers(-8, 9, (3, size)).astype(np.float32)
    out = weight.format.matmul(jnp.asarray(x), weight, None, None, out_dtype=jnp.dtype(jnp.float32))
    np.testing.assert_allclose(out, x @ expected.T, rtol=1e-5, atol=1e-3)


MIXES = [(0, 1), (3, 6), (0, 5, 6), (2, 7), (1, 3), (0, 1, 2, 3, 5, 6, 7)]


@both
@pytest.mark.parametrize("gated", [False, True], ids=["whole", "gated"])
@pytest.mark.parametrize("used", MIXES, ids=str)
def test_a_matrix_of_several_kinds(plain: WeightFormat, used: tuple[int, ...], gated: bool) -> None:
    """In a stack of two layers, of which the second has one kind and fewer bytes, or more."""
    size, rows, each = 256, COLUMNS * 2 * len(used), 2 * COLUMNS
    orders = (used, used[-1:] * len(used))
    tensors = {
        f"{layer}.{place}": random_rows((each,), size, KINDS, {kind}, kind + layer)
        for layer, order in enumerate(orders)
        for place, kind in enumerate(order)
    }
    source = RowsSource(tensors, KINDS)
    parts = Concatenate([f"{{layer}}.{place}" for place in range(len(used))], (each,) * len(used))
    stack, shape = Stack("layer", range(2), parts), (2, rows, size)
    matrix = Matrix(shape[1:], jnp.dtype(jnp.float32), gated)
    found = [parts_of_rows(source, parts, shape[1:], {"layer": layer}) for layer in range(2)]
    layers = [one for one in found if one is not None]
    kinds = tuple(KINDS[kind] for kind in used)
    form = coded_format(kinds, layers, matrix, plain, ordered=False)
    assert form is not None
    weight = one_layer(loaded(source, stack, form, shape, gated), 1)
    expected = np.concatenate([numbers(tensors[f"1.{i}"], KINDS) for i in range(len(used))])
    x = np.random.default_rng(4).integers(-2, 3, (5, size)).astype(np.float32) / 64
    if gated:
        out = weight.format.gated_matmul(jnp.asarray(x), weight, None, "relu", jnp.int32(1), None)
        gate, up = np.split(x @ expected.T, 2, axis=1)
        np.testing.assert_allclose(out, np.maximum(gate, 0) * up, rtol=1e-4, atol=1e-2)
    else:
        out = weight.format.matmul(
            jnp.asarray(x), weight, jnp.int32(1), None, out_dtype=jnp.dtype(jnp.float32)
        )
        np.testing.assert_allclose(out, x @ expected.T, rtol=1e-4, atol=1e-3)


def test_kinds_with_nothing_in_common() -> None:
    """A table of fractions and whole numbers; groups that do not fit; activations of one only."""
    assert common_kind([Kind(FP4, 32), Kind(INT8, 32)]) is None
    assert common_kind([Kind(NIBBLES, 32), Kind(NIBBLES, 48)]) is None
    assert common_kind([Kind(INT8, 64), Kind(INT8, 64, activations=INT8)]) is None
    assert common_kind([Kind(FP4, 64), Kind(FP4, 32)]) == Kind(FP4, 32)


def test_rows_that_the_kernels_do_not_hold() -> None:
    """Groups of 24 columns; two kinds in one panel, or in one of the experts."""
    matrix = Matrix((COLUMNS, 256), jnp.dtype(jnp.float32))
    assert most_bytes((Kind(INT8, 24),), [[(Kind(INT8, 24), COLUMNS)]], matrix) is None
    kinds = KINDS[0], KINDS[5]
    halves = [[(kind, COLUMNS // 2) for kind in kinds]]
    assert most_bytes(kinds, halves, matrix) is None
    whole = [[(kind, COLUMNS) for kind in kinds]]
    both = matrix._replace(shape=(2 * COLUMNS, 256))
    assert most_bytes(kinds, whole, both) is not None
    assert most_bytes(kinds, whole, matrix._replace(shape=(2, COLUMNS, 256))) is None


@both
def test_rows_whose_inputs_are_rounded_to_int8(plain: WeightFormat) -> None:
    """In groups their products are no whole numbers: they stay weights alone."""
    rounded = Kind(INT8, 64, activations=INT8)
    kinds, panels = {64: W8A8Panels, 128: CodedPanels}, isinstance(plain, Panels)
    for size, expected in kinds.items():
        matrix = Matrix((8, size), jnp.dtype(jnp.float32))
        form = coded_format((rounded,), [[(rounded, 8)]], matrix, plain, ordered=False)
        others = W8A8Dense if size == 64 else Coded
        assert isinstance(form, expected if panels else others)
    form = coded_format((rounded,), [[(rounded, 8)]], matrix, plain, ordered=True)
    assert isinstance(form, CodedPanels if panels else Coded)


def test_kernels_that_do_not_compile(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Weights alone are decoded when they are read; the products of W8A8 are left to XLA."""
    missing = {need: (f"cpu_kernels.{need}.missing",) for need in ("codes", "W8A8")}
    monkeypatch.setattr(availability, "ON_DEMAND", missing)
    availability.failure_on_demand.cache_clear()
    rounded = Kind(INT8, 64, activations=INT8)
    matrix = Matrix((8, 64), jnp.dtype(jnp.float32))
    try:
        for _ in range(2):
            kinds = KINDS[0], rounded
            found = [
                coded_format((kind,), [[(kind, 8)]], matrix, Panels(), ordered=False)
                for kind in kinds
            ]
            assert found == [None, IndexedW8A8Dense()]
    finally:
        availability.failure_on_demand.cache_clear()
    reasons = [record.getMessage() for record in caplog.records]
    assert len(reasons) == 2 and all("No module named 'cpu_kernels." in one for one in reasons)


@both
def test_experts_and_heads(plain: WeightFormat) -> None:
    """An axis before the rows; a product of each expert's rows."""
    tensors = {f"{i}": random_rows((6,), 64, KINDS, {0}, i) for i in range(2)}
    source = RowsSource(tensors, KINDS)
    stack = Stack("expert", range(2), "{expert}")
    weight = loaded(source, stack, form_of(source, plain, stack, (2, 6, 64)), (2, 6, 64))
    expected = np.stack([numbers(rows, KINDS) for rows in tensors.values()])
    x = np.random.default_rng(0).integers(-4, 5, (5, 64)).astype(np.float32)
    starts = jnp.array([0, 2, 5], jnp.int32)
    out = weight.format.grouped_matmul(jnp.asarray(x), weight, None, starts, None)
    products = np.concatenate([x[:2] @ expected[0].T, x[2:] @ expected[1].T])
    np.testing.assert_allclose(out, products, rtol=1e-5, atol=1e-3)
    form = form_of(source, plain, stack, (2, 6, 64), gated=True)
    gated = loaded(source, stack, form, (2, 6, 64), True)
    out = gated.format.grouped_gated_matmul(jnp.asarray(x), gated, None, "relu", starts, None)
    gate, up = np.split(products, 2, axis=1)
    np.testing.assert_allclose(out, np.maximum(gate, 0) * up, rtol=1e-4, atol=1e-3)
    twice = np.stack([x, x])
    layers = Stack("layer", (1, 0), Stack("expert", range(2), "{layer}{expert}"))
    source.tensors = {f"{layer}{i}": rows for layer in "01" for i, rows in tensors.items()}
    source.tensors["10"] = source.tensors["11"] = random_rows((6,), 64, KINDS, {0}, 7)
    form = form_of(source, plain, transform_of(layers.part).renamed(lambda _: "00"), (2, 6, 64))
    second = one_layer(loaded(source, layers, form, (2, 2, 6, 64)), 1)
    out = second.format.batched_matmul(jnp.asarray(twice), second, jnp.int32(1), None)
    np.testing.assert_allclose(out, twice @ expected.swapaxes(1, 2), rtol=1e-5, atol=1e-3)


@both
def test_columns_in_another_order(plain: WeightFormat) -> None:
    order = np.random.default_rng(1).permutation(64)
    rows = random_rows((7,), 64, KINDS, {1}, 5)
    source = RowsSource({"w": rows, "v": rows}, KINDS, {"w": order})
    assert is_ordered(source, Tensor("w"), (7, 64), {})
    assert not is_ordered(source, Tensor("v"), (7, 64), {})
    form = form_of(source, plain, Tensor("w"), (7, 64), ordered=True)
    values = np.empty((7, 64), np.float32)
    x = np.random.default_rng(2).integers(-4, 5, (3, 64)).astype(np.float32)
    for name in "wv":
        source.read_into(name, values)
        weight = loaded(source, Tensor(name), form, (7, 64))
        out = weight.format.matmul(
            jnp.asarray(x), weight, None, None, out_dtype=jnp.dtype(jnp.float32)
        )
        np.testing.assert_allclose(out, x @ values.T, rtol=1e-5, atol=1e-3)
    layers = Stack("layer", range(2), "{layer}")
    source.tensors |= {"0": rows, "1": rows}
    source.orders["1"] = order
    source.read_into("w", values)
    second = one_layer(loaded(source, layers, form, (2, 7, 64)), 1)
    out = second.format.matmul(
        jnp.asarray(x), second, jnp.int32(1), None, out_dtype=jnp.dtype(jnp.float32)
    )
    np.testing.assert_allclose(out, x @ values.T, rtol=1e-5, atol=1e-3)
    with pytest.raises(WeightsError, match=r"tensor v: its columns .* than those of w"):
        loaded(source, Concatenate(("w", "v"), (7, 7)), form, (14, 64))


def test_which_transforms_move_whole_rows() -> None:
    order = np.arange(3)
    assert moves_rows(Concatenate(("a", Rows("b", order, 3)), (3, 3)), 1)
    assert moves_rows(Stack("x", range(2), Concatenate("ab")), 2)
    assert moves_rows(Rows(Stack("x", range(2), "a"), order, 3, axis=1), 2)
    assert moves_rows(Heads("a"), 2)
    assert moves_rows(Transpose("a"), 1, turned=True)
    assert not moves_rows(Concatenate("ab", axis=1), 1)
    assert not moves_rows(Concatenate("ab", axis=-1), 1)
    assert not moves_rows(Rows("a", order, 3, axis=1), 1)
    assert not moves_rows(Transpose("a"), 1)
    assert not moves_rows(Tensor("a"), 1, turned=True)
    assert not moves_rows(Transpose(AddOne("a")), 1, turned=True)
    assert not moves_rows(AddOne("a"), 1)
    assert not moves_rows(Tensor("a"), 0)


@pytest.mark.slow
def test_rows_of_codes_are_turned_already() -> None:
    rows = random_rows((6,), 64, KINDS, {0}, 1)
    source = RowsSource({"turned": rows}, KINDS)
    assert parts_of_rows(source, Transpose("turned"), (6, 64), {}) == [(KINDS[0], 6)]
    form = form_of(source, Panels(), Transpose("turned"), (6, 64))
    weight = loaded(source, Transpose("turned"), form, (6, 64))
    found = weight.format.take_rows(weight, jnp.arange(6, dtype=jnp.int32))
    np.testing.assert_array_equal(found, numbers(rows, KINDS))


def test_the_parts_of_a_matrix() -> None:
    tensors = {str(kind): random_rows((5,), 64, KINDS, {kind}, kind) for kind in (0, 5)}
    source = RowsSource(tensors, KINDS)
    both = Concatenate(("0", "5"), (5, 5))
    assert parts_of_rows(source, both, (10, 64), {}) == [(KINDS[0], 5), (KINDS[5], 5)]
    assert parts_of_rows(source, AddOne("0"), (5, 64), {}) is None
    some = Rows(both, np.array([0, 1, 6, 9, 4]), 10)
    chosen = [(KINDS[0], 2), (KINDS[5], 2), (KINDS[0], 1)]
    assert parts_of_rows(source, some, (5, 64), {}) == chosen
    assert parts_of_rows(source, Columns(some, 32, 48, 64), (5, 16), {}) == chosen
    assert parts_of_rows(source, Heads(both), (2, 5, 64), {}) == [(KINDS[0], 5), (KINDS[5], 5)]
    each = Stack("expert", (5, 0, 0), Rows("{expert}", np.array([1, 2]), 5))
    assert parts_of_rows(source, each, (3, 2, 64), {}) == [(KINDS[5], 2), (KINDS[0], 4)]
    source.kind = lambda name: KINDS[0] if name == "0" else None  # type: ignore[method-assign]
    assert parts_of_rows(source, both, (10, 64), {}) is None
