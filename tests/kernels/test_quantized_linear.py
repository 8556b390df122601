"""Products with codes on a CPU, against the numbers that the codes stand for."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpu_kernels.linear.chunks import MIN_TOKENS, PANEL_CHUNKS
from cpu_kernels.linear.coded_tiles import PART_BYTES
from cpu_kernels.linear.coded_weights import CodedWeights
from cpu_kernels.linear.linear import linear
from cpu_kernels.linear.tiles import ROW_COUNTS
from cpu_kernels.simd.micro_kernel import COLUMNS, ROWS
from jax_engine.weights.codes import E4M3, INT8, Kind
from tests.kernels.quantized import KINDS, SEVEN_LESS, Packed, meant, most_wrong, packed, rows_of

DTYPES = (jnp.float32, jnp.bfloat16, jnp.float16)
PART = PART_BYTES // (2 * COLUMNS)  # columns of x in a decoded part, at most
sizes = st.one_of(
    st.integers(1, 80), st.sampled_from([96, 250, 256, PART, PART + 5, 2 * PART + 33])
)


@partial(jax.jit, static_argnames=("kinds", "width", "dtype"))
def product(
    x: Any,
    panels: Any,
    places: Any,
    layer: Any = None,
    num_rows: Any = None,
    *,
    kinds: Any,
    width: int,
    dtype: Any,
) -> jax.Array:
    weight = CodedWeights(panels, places, kinds, jnp.dtype(dtype))
    return linear(x, weight, width=width, layer=layer, num_rows=num_rows)


def times(x: Any, weight: Packed, width: int, dtype: Any, **more: Any) -> np.ndarray:
    panels, places, kinds = weight
    more = {"layer": jnp.int32(len(panels) - 1)} | more
    options: dict[str, Any] = {"kinds": kinds, "width": width, "dtype": dtype}
    return np.asarray(product(x, panels, places, **more, **options))


def rounded(x: np.ndarray, dtype: Any) -> np.ndarray:
    return np.asarray(jnp.asarray(x, dtype), np.float64)


def check(
    tokens: int, stack: Sequence[np.ndarray], kinds: Sequence[Kind], dtype: Any, seed: int
) -> None:
    """The product with the last matrix of a stack."""
    rows = stack[-1]
    size = rows.dtype["codes"].shape[0]
    x = np.random.default_rng(seed).standard_normal((tokens, size)).astype(np.float32)
    found = times(x, packed(stack, kinds), len(rows), dtype)
    exact = rounded(x, dtype) @ meant(rows, kinds).T.astype(np.float64)
    assert (np.abs(found - exact) <= most_wrong(rounded(x, dtype), rows, kinds)).all()


@given(
    tokens=st.one_of(st.integers(0, 2 * ROWS + 3), st.integers(60, 150)),
    width=st.integers(1, 2 * COLUMNS + 3),
    size=sizes,
    layers=st.integers(1, 3),
    kind=st.sampled_from(KINDS),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**31),
)
@example(0, 5, 40, 1, KINDS[0], jnp.float32, 0)
@example(0, 5, 40, 1, KINDS[1], jnp.float32, 0)
@example(1, 1, 1, 1, KINDS[1], jnp.bfloat16, 0)
def test_any_shape(
    tokens: int, width: int, size: int, layers: int, kind: Kind, dtype: Any, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    stack = [rows_of(rng, (kind,), [0] * width, size) for _ in range(layers)]
    check(tokens, stack, (kind,), dtype, seed + 1)


@given(
    tokens=st.sampled_from([1, 2, 3, 5, ROWS + 1]),
    kinds=st.lists(st.sampled_from(KINDS), min_size=2, max_size=4),
    size=st.sampled_from([40, 300]),
    layers=st.integers(1, 3),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**31),
)
def test_kinds_mixed_in_a_matrix_and_in_a_stack(
    tokens: int, kinds: list[Kind], size: int, layers: int, dtype: Any, seed: int
) -> None:
    rng, panels = np.random.default_rng(seed), 5
    stack = []
    for _ in range(layers):
        chosen = np.repeat(rng.integers(0, len(kinds), panels), COLUMNS)[: panels * COLUMNS - 3]
        stack.append(rows_of(rng, kinds, chosen, size))
    check(tokens, stack, kinds, dtype, seed + 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at_once", [*ROW_COUNTS, 150])
def test_each_number_is_decoded_exactly(kind: Kind, dtype: Any, at_once: int) -> None:
    """Rows of x that are 0 but for a 1 take single numbers out of the weight."""
    size, width = 150, COLUMNS + 9
    rows = rows_of(np.random.default_rng(0), (kind,), [0] * width, size)
    weight, ones = packed([rows], (kind,)), np.eye(size, dtype=np.float32)
    found = [times(ones[i : i + at_once], weight, width, dtype) for i in range(0, 16, at_once)]
    expected = meant(rows, (kind,)).T[: len(found) * at_once]
    np.testing.assert_array_equal(np.concatenate(found)[: len(expected)], expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [1, ROWS + 1])
@pytest.mark.parametrize("code", [SEVEN_LESS, INT8, E4M3])
def test_every_code(code: Any, tokens: int, dtype: Any) -> None:
    """A row of each code; one of E4M3 means NaN."""
    kind = Kind(code, 16)
    rows = rows_of(np.random.default_rng(0), (kind,), [0] * 2**kind.bits, 16)
    rows["codes"], rows["scales"] = np.arange(len(rows))[:, None], 1
    found = times(np.full((tokens, 16), 0.25), packed([rows], (kind,)), len(rows), dtype)
    expected = np.broadcast_to(4 * meant(rows, (kind,))[:, 0], found.shape)
    np.testing.assert_array_equal(found, expected)


@given(
    tokens=st.integers(1, 2 * ROWS + 3),
    kind=st.sampled_from([kind for kind in KINDS if kind.code in (SEVEN_LESS, INT8)]),
    size=sizes,
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**31),
)
def test_whole_numbers_are_multiplied_exactly(
    tokens: int, kind: Kind, size: int, dtype: Any, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = rows_of(rng, (kind,), [0] * 9, size, whole=True)
    x = rng.integers(-1, 2, (tokens, size)).astype(np.float32)
    found = times(x, packed([rows], (kind,)), 9, dtype)
    np.testing.assert_array_equal(found, x @ meant(rows, (kind,)).T)


def test_a_table_is_rounded_where_pairs_of_bfloat16_are_multiplied() -> None:
    kind = Kind(tuple(0.1 * i - 0.77 for i in range(16)), 32)
    rows = rows_of(np.random.default_rng(0), (kind,), [0] * 5, 64)
    x = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    exact = rounded(x, jnp.float32) @ meant(rows, (kind,)).T
    found = times(x, packed([rows], (kind,)), 5, jnp.float32)
    np.testing.assert_allclose(found, exact, atol=1e-4)
    found = times(x, packed([rows], (kind,)), 5, jnp.bfloat16)
    assert np.abs(found - exact).max() < 0.02 * np.abs(rounded(x, jnp.float32)).sum(1).max()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [KINDS[0], KINDS[1], KINDS[4], KINDS[9]])
@pytest.mark.parametrize("size", [600, 2 * PART + 33])
def test_a_row_is_the_same_whatever_is_beside_it(size: int, kind: Kind, dtype: Any) -> None:
    """Holds for one row alone, tiles of any size, and several chunks of x."""
    rng, tokens = np.random.default_rng(0), 9 * MIN_TOKENS
    weight = packed([rows_of(rng, (kind,), [0] * 77, size)], (kind,))
    x = rng.standard_normal((tokens, size)).astype(np.float32)
    whole = times(x, weight, 77, dtype)
    for start, count in [(0, 1), (1, 2), (4, 3), (7, 4), (9, 5), (20, 9), (4, 66), (9, 300)]:
        some = times(x[start : start + count], weight, 77, dtype)
        np.testing.assert_array_equal(some, whole[start : start + count])
    few = times(x, weight, 77, dtype, num_rows=jnp.int32(3))
    np.testing.assert_array_equal(few[:3], whole[:3])


@pytest.mark.parametrize("tokens", [1, ROWS + 3])
def test_chunks_of_several_panels_of_which_the_last_is_not_full(tokens: int) -> None:
    rows = rows_of(np.random.default_rng(0), KINDS[:1], [0] * (2 * PANEL_CHUNKS * COLUMNS - 3), 24)
    check(tokens, [rows], KINDS[:1], jnp.bfloat16, 1)


@pytest.mark.parametrize(("asked", "taken"), [(0, 0), (2, 2), (-1, 0), (3, 2)])
def test_the_layers_at_the_ends_and_beyond(asked: int, taken: int) -> None:
    rng, kinds = np.random.default_rng(0), KINDS[:1]
    stack = [rows_of(rng, kinds, [0] * 5, 40) for _ in range(3)]
    x = rng.standard_normal((3, 40)).astype(np.float32)
    weight = packed(stack, kinds, spare=64)
    found = times(x, weight, 5, jnp.float32, layer=jnp.int32(asked))
    alone = times(x, packed([stack[taken]], kinds), 5, jnp.float32)
    np.testing.assert_array_equal(found, alone)


@pytest.mark.parametrize("rows", [5, 3 * MIN_TOKENS])
@pytest.mark.parametrize("count", [-3, 0, 1, 5, MIN_TOKENS + 1, 1000])
def test_padding_gives_zeros_whatever_it_holds(count: int, rows: int) -> None:
    rng, kinds = np.random.default_rng(0), KINDS[1:2]
    weight = packed([rows_of(rng, kinds, [0] * 30, 1200)], kinds)
    x = rng.standard_normal((rows, 1200)).astype(np.float32)
    found = times(x, weight, 30, jnp.float32)
    x[max(count, 0) :] = np.nan
    some = times(x, weight, 30, jnp.float32, num_rows=jnp.int32(count))
    np.testing.assert_array_equal(some[: max(count, 0)], found[: max(count, 0)])
    assert not some[max(count, 0) :].any()


def test_x_is_rounded_to_the_dtype_of_the_products() -> None:
    rng, kinds = np.random.default_rng(0), KINDS[1:2]
    weight = packed([rows_of(rng, kinds, [0] * 9, 70)], kinds)
    x = jnp.asarray(rng.standard_normal((5, 70)), jnp.float32)
    found = times(x, weight, 9, jnp.bfloat16)
    np.testing.assert_array_equal(times(x.astype(jnp.bfloat16), weight, 9, jnp.bfloat16), found)
    assert np.abs(times(x, weight, 9, jnp.float32) - found).max() > 1e-3


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("tokens", [1, 6, ROWS + 5])
def test_what_is_not_finite_stays_in_its_row(value: float, tokens: int) -> None:
    rng, kinds = np.random.default_rng(0), KINDS[:1]
    weight = packed([rows_of(rng, kinds, [0] * 7, 21)], kinds)
    x = rng.standard_normal((tokens, 21)).astype(np.float32)
    expected = times(x, weight, 7, jnp.float32)
    x[tokens - 1, 20] = value
    found = times(x, weight, 7, jnp.float32)
    np.testing.assert_array_equal(found[:-1], expected[:-1])
    assert not np.isfinite(found[-1]).any()


def test_several_threads_at_once() -> None:
    rng, kinds = np.random.default_rng(0), KINDS[:1]
    weight = packed([rows_of(rng, kinds, [0] * 400, 300) for _ in range(4)], kinds)
    x = rng.standard_normal((9, 300)).astype(np.float32)
    run = partial(times, x, weight, 400, jnp.bfloat16)
    expected = [run(layer=jnp.int32(layer)) for layer in range(4)]
    with ThreadPoolExecutor(4) as pool:
        calls = [(n % 4, pool.submit(run, layer=jnp.int32(n % 4))) for n in range(100)]
    for layer, call in calls:
        np.testing.assert_array_equal(call.result(), expected[layer])


def test_a_stack_is_not_copied() -> None:
    rng, kinds = np.random.default_rng(0), KINDS[:1]
    rows = rows_of(rng, kinds, [0] * 480, 480)
    panels, places, held = packed([rows] * 5, kinds)

    def all_layers(x: jax.Array, panels: jax.Array, places: jax.Array) -> jax.Array:
        def step(x: jax.Array, layer: jax.Array) -> tuple[jax.Array, None]:
            weight = CodedWeights(panels, places, held, x.dtype)
            return linear(x, weight, width=480, layer=layer), None

        return jax.lax.scan(step, x, jnp.arange(len(panels), dtype=jnp.int32))[0]

    x = jnp.ones((2, 480))
    compiled = jax.jit(all_layers).lower(x, panels, places).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < panels.nbytes // len(panels)


def test_places_of_another_shape_are_refused() -> None:
    rows = rows_of(np.random.default_rng(0), KINDS[:1], [0] * COLUMNS, 40)
    panels, places, held = packed([rows], KINDS[:1])
    message = rf"{COLUMNS + 1} rows must be \(1, 2, 2\), got \(1, 1, 2\)"
    weight = CodedWeights(panels, places, held, jnp.dtype(jnp.float32))
    with pytest.raises(ValueError, match=message):
        linear(jnp.ones((2, 40)), weight, width=COLUMNS + 1)
