"""Products on a CPU against NumPy in float64."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpu_kernels.linear.chunks import MIN_TOKENS, PANEL_CHUNKS, X_BYTES
from cpu_kernels.linear.float_weights import FloatWeights
from cpu_kernels.linear.linear import linear
from cpu_kernels.linear.panels import pack_panels, panel_shape, take_rows
from cpu_kernels.linear.tiles import PART
from cpu_kernels.simd.micro_kernel import COLUMNS, ROWS

DTYPES = (jnp.float32, jnp.bfloat16, jnp.float16)
sizes = st.one_of(
    st.integers(1, 2 * COLUMNS + 3),
    st.sampled_from([96, 250, PART, PART + 5, 2 * PART + 1, 2 * PART + 6]),
)
LONG = 2 * PART + 2  # of such rows few make a chunk of x
CHUNK_ROWS = max(X_BYTES // (4 * LONG) // ROWS * ROWS, MIN_TOKENS)


def numbers(seed: int, *shape: int, dtype: Any = jnp.float32) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def panels_of(weight: Any) -> jax.Array:
    """A weight in panels, packed into memory that held NaN."""
    held = (*weight.shape[:-2], *panel_shape(*weight.shape[-2:], weight.dtype))
    out = np.full(held, np.nan, weight.dtype)
    return jnp.asarray(pack_panels(np.asarray(weight), out))


@partial(jax.jit, static_argnames="width")
def product(x: Any, panels: Any, width: int, layer: Any = None, num_rows: Any = None) -> jax.Array:
    return linear(x, FloatWeights(panels), width=width, layer=layer, num_rows=num_rows)


def times(x: Any, weight: Any, **more: Any) -> np.ndarray:
    """x @ weight.T, of a weight that is not in panels yet."""
    return np.asarray(product(x, panels_of(weight), weight.shape[-2], **more))


def exact(x: Any, weight: Any) -> np.ndarray:
    found: np.ndarray = np.asarray(x, np.float64) @ np.asarray(weight, np.float64).T
    return found


@given(
    tokens=st.one_of(st.integers(1, 2 * ROWS + 3), st.integers(60, 150)),
    sizes=st.tuples(sizes, sizes),
    layers=st.integers(0, 3),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**31),
)
def test_any_shape(tokens: int, sizes: Any, layers: int, dtype: Any, seed: int) -> None:
    """`layers` 0 is a weight on its own, of which all else is the same."""
    out, size = sizes
    x = numbers(seed, tokens, size, dtype=dtype)
    stack = numbers(seed + 1, max(layers, 1), out, size, dtype=dtype)
    weight, layer = (stack, jnp.int32(layers - 1)) if layers else (stack[0], None)
    found = times(x, weight, layer=layer)
    # Rounding errors add up like a random walk, in units of the products' size.
    tolerance = 8 * np.finfo(np.float32).eps * (np.sqrt(size) + 8)
    bound = tolerance * np.sqrt(size) + tolerance
    np.testing.assert_allclose(found, exact(x, stack[-1]), rtol=0, atol=bound)


@pytest.mark.parametrize(("asked", "taken"), [(0, 0), (2, 2), (-1, 0), (3, 2)])
def test_the_layers_at_the_ends_and_beyond(asked: int, taken: int) -> None:
    x, stack = numbers(0, 3, 17), numbers(1, 3, 5, 17)
    found = times(x, stack, layer=jnp.int32(asked))
    np.testing.assert_allclose(found, exact(x, stack[taken]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [1, ROWS + 3])
def test_chunks_of_several_panels_of_which_the_last_is_not_full(tokens: int, dtype: Any) -> None:
    x = numbers(0, tokens, 24, dtype=dtype)
    weight = numbers(1, 2 * PANEL_CHUNKS * COLUMNS - 3, 24, dtype=dtype)
    np.testing.assert_allclose(times(x, weight), exact(x, weight), rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("out", "size"), [(50, 700), (577, LONG), (7, LONG + 1)])
def test_a_row_is_the_same_whatever_is_beside_it(out: int, size: int, dtype: Any) -> None:
    """Holds for one row alone, tiles of any size, and several chunks of x."""
    x, weight = numbers(0, 2 * CHUNK_ROWS + 9, size), numbers(1, out, size, dtype=dtype)
    whole = times(x, weight)
    for start, count in [(0, 1), (1, 2), (7, 4), (20, 9), (4, 66), (99, CHUNK_ROWS + 1)]:
        some = times(x[start : start + count], weight)
        np.testing.assert_array_equal(some, whole[start : start + count])
    few = times(x, weight, num_rows=jnp.int32(3))
    np.testing.assert_array_equal(few[:3], whole[:3])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "size"), [(1, 1), (COLUMNS, 33), (2 * COLUMNS + 17, 50)])
def test_rows_are_taken_out_of_panels_as_they_were(rows: int, size: int, dtype: Any) -> None:
    weight = numbers(0, rows, size, dtype=dtype)
    asked, nearest = [0, rows - 1, rows // 2, -3, rows, 999], [0, rows - 1, rows // 2, 0, -1, -1]
    found = take_rows(panels_of(weight), jnp.asarray(asked), size)
    np.testing.assert_array_equal(found, weight[jnp.asarray(nearest)])


@pytest.mark.parametrize(("width", "size"), [(COLUMNS + 1, 40), (COLUMNS - 2, 60)])
def test_panels_of_another_shape_are_refused(width: int, size: int) -> None:
    panels = panels_of(numbers(0, COLUMNS - 2, 40))
    message = rf"weight \[{width}, {size}\] must be .*, got \(1, 48, {COLUMNS}\)"
    with pytest.raises(ValueError, match=message):
        linear(numbers(1, 2, size), FloatWeights(panels), width=width)


@pytest.mark.parametrize(("dtype", "least"), [(jnp.bfloat16, 1e-3), (jnp.float16, 1e-4)])
def test_x_is_rounded_to_the_type_of_the_weight(dtype: Any, least: float) -> None:
    x, weight = numbers(0, 5, 70), numbers(1, 9, 70, dtype=dtype)
    rounded = times(x.astype(dtype), weight)
    np.testing.assert_array_equal(times(x, weight), rounded)
    assert np.abs(rounded - exact(x, weight)).max() > least  # so there was something to round


def test_every_float16_is_widened_exactly() -> None:
    """Subnormal ones too, on either side; infinities become one, and NaN becomes NaN."""
    every = jnp.asarray(np.arange(2**16, dtype=np.uint16).view(np.float16))
    one = jnp.ones((1, 1), jnp.float16)
    expected = np.asarray(every).astype(np.float32)
    np.testing.assert_array_equal(times(one, every[:, None])[0], expected)
    np.testing.assert_array_equal(times(every[:, None], one)[:, 0], expected)
    np.testing.assert_array_equal(times(jnp.asarray(expected)[:, None], one)[:, 0], expected)


@pytest.mark.parametrize("rows", [5, CHUNK_ROWS + 3])
@pytest.mark.parametrize("count", [-3, 0, 1, 5, CHUNK_ROWS + 1, CHUNK_ROWS + 3, 1000])
def test_padding_gives_zeros_whatever_it_holds(count: int, rows: int) -> None:
    x, weight = np.array(numbers(0, rows, LONG)), numbers(1, 30, LONG)
    found = times(jnp.asarray(x), weight)
    x[max(count, 0) :] = np.nan
    some = times(jnp.asarray(x), weight, num_rows=jnp.int32(count))
    np.testing.assert_array_equal(some[: max(count, 0)], found[: max(count, 0)])
    assert not some[max(count, 0) :].any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("tokens", [1, 6, ROWS + 5])
def test_what_is_not_finite_travels(value: float, tokens: int) -> None:
    x = np.abs(numbers(0, tokens, 21)) + 1
    weight = np.abs(numbers(1, 7, 21)) + 1
    of_x, of_weight = x.copy(), weight.copy()
    of_x[tokens - 1, 20] = of_weight[5, 3] = value
    for found, spoilt in (
        (times(jnp.asarray(of_x), jnp.asarray(weight)), np.s_[tokens - 1, :]),
        (times(jnp.asarray(x), jnp.asarray(of_weight)), np.s_[:, 5]),
    ):
        expected = exact(x, weight)
        expected[spoilt] = value
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("tokens", [6, ROWS + 1])
def test_nothing_is_read_beyond_a_layer(tokens: int) -> None:
    """Its neighbours are NaN, and rows end in the middle of a vector."""
    stack = np.full((3, 5, 13), np.nan, np.float32)
    stack[1] = numbers(0, 5, 13)
    x = numbers(1, tokens, 13)
    found = times(x, jnp.asarray(stack), layer=jnp.int32(1))
    np.testing.assert_allclose(found, exact(x, stack[1]), rtol=1e-4, atol=1e-5)


def test_several_threads_at_once() -> None:
    x, stack = numbers(0, 9, 300), panels_of(numbers(1, 4, 400, 300))
    run = partial(product, width=400)
    expected = [np.asarray(run(x, stack, layer=jnp.int32(layer))) for layer in range(4)]
    with ThreadPoolExecutor(4) as pool:
        calls = [(n % 4, pool.submit(run, x, stack, layer=jnp.int32(n % 4))) for n in range(200)]
    for layer, call in calls:
        np.testing.assert_array_equal(call.result(), expected[layer])


def test_a_stack_is_not_copied() -> None:
    def all_layers(x: jax.Array, stack: jax.Array) -> jax.Array:
        def step(x: jax.Array, layer: jax.Array) -> tuple[jax.Array, None]:
            return linear(x, FloatWeights(stack), width=48, layer=layer), None

        return jax.lax.scan(step, x, jnp.arange(len(stack), dtype=jnp.int32))[0]

    x, stack = numbers(0, 2, 48), panels_of(numbers(1, 5, 48, 48))
    compiled = jax.jit(all_layers).lower(x, stack).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < stack.nbytes // len(stack)
