"""What adapters add to products: a CPU's kernels and XLA's twin, against NumPy in float64."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpu_kernels.linear.float_weights import FloatWeights
from cpu_kernels.linear.linear import gated_linear
from cpu_kernels.linear.panels import pack_panels
from cpu_kernels.simd.micro_kernel import COLUMNS
from jax_engine.operations import numba, xla
from jax_engine.weights.low_rank import A, B, LowRank, dense_of, expand_of, halves_of, sort_rows
from tests.kernels.low_rank import Case, make

ADDS = {"numba": numba.add_low_rank, "xla": xla.add_low_rank}
adds = pytest.mark.parametrize("by", sorted(ADDS))
DTYPES = (jnp.float32, jnp.bfloat16)
dtypes = pytest.mark.parametrize("dtype", DTYPES)


@partial(jax.jit, static_argnames=("by", "layout"))
def _add(out: Any, x: Any, arrays: Any, layer: Any, rows: Any, *, layout: Any, by: str) -> Any:
    return ADDS[by](out, LowRank(x, arrays, layout, layer, rows, ADDS[by]))


def added(case: Case, out: np.ndarray, by: str) -> np.ndarray:
    low = case.low
    given = jnp.asarray(out), low.x, low.arrays, low.layer, low.rows
    return np.asarray(_add(*given, layout=low.layout, by=by))


def products(case: Case, seed: int = 9) -> np.ndarray:
    """Random numbers in place of products with the model's own weight."""
    shape = len(case.slot), case.layout.out_size
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def close(found: np.ndarray, case: Case, out: np.ndarray) -> None:
    """Within float32's rounding of numbers as large as those that are added up."""
    for row in range(len(out)):
        expected = case.added(row) + out[row]
        size = np.abs(np.asarray(case.x[row], np.float64)).sum() * 8 * (case.layout.max_rank + 1)
        np.testing.assert_allclose(found[row], expected, rtol=0, atol=2e-6 * size + 1e-6)


ranks = st.sampled_from([0, 1, 3, 8, 16, 17, 33, 64])
groups = st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 9, 40]), min_size=1, max_size=4)


@pytest.mark.slow
@example(counts=[1], alone=0, in_size=1, sizes=[1], given=[1], biased=True, dtype=jnp.float32,
         seed=0)  # fmt: skip
@given(
    counts=groups,
    alone=st.integers(0, 5),
    in_size=st.sampled_from([1, 2, 15, 16, 17, 33, 250]),
    sizes=st.lists(st.sampled_from([1, 7, 16, 31, 32, 33, 80]), min_size=1, max_size=3),
    given=st.lists(ranks, min_size=12, max_size=12),
    biased=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**31),
)
def test_any_sizes(
    counts: list[int],
    alone: int,
    in_size: int,
    sizes: list[int],
    given: list[int],
    biased: bool,
    dtype: Any,
    seed: int,
) -> None:
    """Groups of any number of rows, none too; modules of any rank, or missing."""
    parts, slots = len(sizes), len(counts)
    each = [(given * 2)[slot * parts : (slot + 1) * parts] for slot in range(slots)]
    rows = [slot + 1 for slot, count in enumerate(counts) for _ in range(count)] + [0] * alone
    np.random.default_rng(seed).shuffle(rows)
    if not rows:
        return
    case = make(
        seed, rows=rows, in_size=in_size, sizes=sizes, ranks=each, max_rank=64, biased=biased,
        dtype=dtype,
    )  # fmt: skip
    out = products(case)
    for by in ADDS:
        found = added(case, out, by)
        close(found, case, out)
        base = case.slot == 0
        assert found[base].tobytes() == out[base].tobytes()


@pytest.mark.slow
@adds
@dtypes
def test_a_row_is_the_same_whatever_is_beside_it(dtype: Any, by: str) -> None:
    """Alone, among others of its adapter and of others, in another order and in another slot."""
    rng, ranks = np.random.default_rng(0), [[16, 5], [0, 3], [8, 33]]
    rows = rng.integers(0, 4, 70).tolist()
    case = make(
        1, rows=rows, in_size=151, sizes=[70, 33], ranks=ranks, max_rank=33, biased=True,
        dtype=dtype,
    )  # fmt: skip
    out = products(case)
    whole = added(case, out, by)
    for count in (1, 2, 3, 4, 5, 17):
        for start in (0, 31):
            some = np.arange(start, start + count)
            few = case._replace(x=case.x[some], slot=case.slot[some])
            np.testing.assert_array_equal(added(few, out[some], by), whole[some])
    order = rng.permutation(70)
    mixed = case._replace(x=case.x[order], slot=case.slot[order])
    np.testing.assert_array_equal(added(mixed, out[order], by), whole[order])
    turned = {name: array[:, ::-1] for name, array in case.arrays.items()}
    others = np.where(case.slot == 0, 0, 4 - case.slot)
    found = added(case._replace(arrays=turned, slot=others), out, by)
    np.testing.assert_array_equal(found, whole)


def test_a_slot_for_larger_ranks_has_the_same_bits() -> None:
    """The kernels stop at an adapter's own rank. XLA multiplies with all of a slot."""
    sizes: dict[str, Any] = {"rows": [1, 2, 0, 2], "in_size": 40, "sizes": [50]}
    small = make(3, ranks=[[5], [16]], max_rank=16, **sizes)
    large = make(3, ranks=[[5], [16]], max_rank=64, **sizes)
    out = products(small)
    np.testing.assert_array_equal(added(small, out, "numba"), added(large, out, "numba"))


@adds
def test_without_rows_that_have_an_adapter_nothing_changes(by: str) -> None:
    case = make(0, rows=[0] * 9, in_size=20, sizes=[30], ranks=[[4]], max_rank=16)
    out = products(case)
    out[0, 0] = -0.0
    assert added(case, out, by).tobytes() == out.tobytes()


@adds
def test_rows_without_an_adapter_may_hold_anything(by: str) -> None:
    """What they are multiplied with is not read by the kernels, and changes nothing elsewhere."""
    case = make(0, rows=[0, 1, 0, 1], in_size=20, sizes=[30], ranks=[[4]], max_rank=16)
    out = products(case)
    out[0], out[2] = np.nan, -0.0
    spoilt = case._replace(x=case.x.at[0].set(jnp.nan).at[2].set(jnp.inf))
    found, expected = added(spoilt, out, by), added(case, out, by)
    assert found.tobytes() == expected.tobytes()
    assert np.isnan(found[0]).all() and np.signbit(found[2]).all()


@adds
@pytest.mark.parametrize(("asked", "taken"), [(-3, 0), (0, 0), (1, 1), (2, 1)])
def test_layers_at_the_ends_and_beyond(asked: int, taken: int, by: str) -> None:
    case = make(0, rows=[1, 2], in_size=9, sizes=[8], ranks=[[2], [3]], max_rank=4)
    out = products(case)
    found = added(case._replace(layer=asked), out, by)
    np.testing.assert_array_equal(found, added(case._replace(layer=taken), out, by))


def test_float16_is_widened() -> None:
    case = make(0, rows=[1, 0], in_size=9, sizes=[8], ranks=[[2]], max_rank=4, x_dtype=jnp.float16)
    out = products(case)
    close(added(case, out, "numba"), case, out)


def test_matrices_come_out_of_their_arrays() -> None:
    case = make(0, rows=[1], in_size=7, sizes=[5, 20], ranks=[[2, 3]], max_rank=3, biased=True)
    a, b = (np.asarray(one)[0] for one in dense_of(case.low))
    one, two = case.modules[case.layer][0]
    np.testing.assert_array_equal(a[:2], one.a)
    np.testing.assert_array_equal(a[16:19], two.a)
    assert not a[2:16].any() and not a[19:].any()
    np.testing.assert_array_equal(b[:5, :2], one.b)
    np.testing.assert_array_equal(b[5:, 16:19], two.b)
    assert not b[:5, 2:-1].any() and not b[5:, :16].any()
    np.testing.assert_array_equal(b[:, -1], np.concatenate([one.bias, two.bias]))


def test_halves_of_columns() -> None:
    """Each panel of a gated product has columns of gate and the same ones of up."""
    assert halves_of([range(0, 20), range(20, 24)], gated=False) == (
        (0, 16, 0), (16, 4, 0), (20, 4, 1), (0, 0, 1)
    )  # fmt: skip
    both = ((0, 16, 0), (20, 16, 1), (16, 4, 0), (36, 4, 1))
    assert halves_of([range(0, 20), range(20, 40)], gated=True) == both
    one = tuple((first, count, 0) for first, count, _ in both)
    assert halves_of([range(0, 40)], gated=True) == one


def test_rows_are_sorted_by_slot() -> None:
    found = sort_rows(jnp.array([2, 0, 1, 2, 0], jnp.int32), 3)
    assert found.order.tolist() == [1, 4, 2, 0, 3]
    assert found.starts.tolist() == [0, 2, 3, 5, 5]


@partial(jax.jit, static_argnames=("width", "layout", "dtype"))
def _gated(x: Any, panels: Any, bias: Any, low: Any, *, layout: Any, width: int, dtype: Any) -> Any:
    arrays, layer, rows = low
    expand = expand_of(LowRank(x, arrays, layout, layer, rows, xla.add_low_rank))
    given = {"width": width, "layer": layer, "num_rows": jnp.int32(len(x)), "dtype": dtype}
    return gated_linear(x, FloatWeights(panels), bias, expand=expand, **given)


@dtypes
@pytest.mark.parametrize("width", [1, 16, COLUMNS, COLUMNS + 5, 4 * COLUMNS + 17])
@pytest.mark.parametrize("ranks", [[[4, 20], [0, 3], [2, 0]], [[8], [0], [16]]], ids=["two", "one"])
def test_the_gate_comes_after_what_is_added(ranks: Any, width: int, dtype: Any) -> None:
    """Gate and up have a module each, or one for both."""
    sizes = [width, width] if len(ranks[0]) == 2 else [2 * width]
    rows = np.random.default_rng(0).integers(0, 4, 45).tolist()
    case = make(
        2, rows=rows, in_size=30, sizes=sizes, ranks=ranks, max_rank=20, gated=True, dtype=dtype,
        biased=True,
    )  # fmt: skip
    weight = np.random.default_rng(1).normal(size=(2 * width, 30)).astype(dtype)
    bias = jnp.asarray(np.random.default_rng(2).normal(size=2 * width), jnp.float32)
    panels = jnp.asarray(np.stack([pack_panels(weight, parts=2)] * 2))  # of both layers
    low = case.low
    found = _gated(
        case.x, panels, bias, (low.arrays, low.layer, low.rows), layout=low.layout, width=width,
        dtype=case.x.dtype,
    )  # fmt: skip
    plain = gated_linear(
        case.x, FloatWeights(panels), bias, width=width, layer=jnp.int32(0),
        num_rows=jnp.int32(len(rows)), dtype=case.x.dtype,
    )  # fmt: skip
    base = case.slot == 0
    np.testing.assert_array_equal(np.asarray(found)[base], np.asarray(plain)[base])
    sums = np.asarray(case.x, np.float64) @ np.asarray(weight, np.float64).T + np.asarray(bias)
    sums += [case.added(row) for row in range(len(rows))]
    gate, up = np.split(sums, 2, axis=1)
    expected = gate / (1 + np.exp(-gate)) * up
    eps = float(jnp.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    room = 1e-4 * (np.abs(gate) + np.abs(up) + 2)
    wrong = np.abs(np.asarray(found, np.float64) - expected)
    assert (wrong <= (eps + 2e-6) * np.abs(expected) + room).all()


def test_slots_that_are_not_used_are_not_read() -> None:
    case = make(0, rows=[1, 0, 1], in_size=9, sizes=[8], ranks=[[2], [3]], max_rank=4)
    out = products(case)
    expected = added(case, out, "numba")
    spoilt = {
        name: array.at[:, 1].set(jnp.nan) for name, array in case.arrays.items() if name in (A, B)
    }
    found = added(case._replace(arrays=case.arrays | spoilt), out, "numba")
    np.testing.assert_array_equal(found, expected)
