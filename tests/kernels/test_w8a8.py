"""Products in int8 on a CPU, equal to the oracle's to the bit."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numba import njit

from cpu_kernels.compiling.jit import processor_has
from cpu_kernels.linear.chunks import MIN_TOKENS, PANEL_CHUNKS, X_BYTES
from cpu_kernels.linear.linear import grouped_linear, linear
from cpu_kernels.linear.w8a8_rows import LEAST, MOST, round_rows
from cpu_kernels.linear.w8a8_weights import W8A8Weights, codes_shape
from cpu_kernels.simd.byte_kernel import byte_kernel_of
from cpu_kernels.simd.byte_words import WAYS, Bytes
from cpu_kernels.simd.micro_kernel import COLUMNS, ROWS
from reference.quantization import smoothquant
from tests.kernels.w8a8 import by_groups, by_oracle, numbers, packed, weights

DTYPES = (jnp.float32, jnp.bfloat16)
sizes = st.one_of(st.integers(1, 2 * COLUMNS + 3), st.sampled_from([96, 250, 771, 1536]))
finite = st.floats(-(2.0**127), 2.0**127, width=32)  # in bfloat16 too
ONES = [1.0] * 5
LONG = 5000  # of such rows few make a chunk of x
CHUNK_ROWS = max(X_BYTES // 5008 // ROWS * ROWS, MIN_TOKENS)


@partial(jax.jit, static_argnames="width")
def product(x: Any, *held: Any, width: int, layer: Any = None, num_rows: Any = None) -> jax.Array:
    return linear(x, W8A8Weights(*held), width=width, layer=layer, num_rows=num_rows)


def times(x: Any, codes: np.ndarray, scales: np.ndarray, **more: Any) -> np.ndarray:
    """x @ weight.T, of a weight that is not in panels yet."""
    held = packed(codes, scales)
    return np.asarray(product(jnp.asarray(x), *held, width=codes.shape[-2], **more))


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
    x = jnp.asarray(numbers(seed, tokens, size), dtype)
    codes, scales = weights(seed + 1, max(layers, 1), out, size)
    held = (codes, scales) if layers else (codes[0], scales[0])
    found = times(x, *held, layer=jnp.int32(layers - 1) if layers else None)
    np.testing.assert_array_equal(found, by_oracle(x, codes[-1], scales[-1]))


@given(
    rows=st.lists(st.lists(finite, min_size=5, max_size=5), min_size=4, max_size=4),
    dtype=st.sampled_from(DTYPES),
)
@example([[127, 0.5, -0.5, 1.5, -2.5], [0] * 5, [LEAST, LEAST / 254, 0, 0, 0], ONES], "float32")
@example([[3.4e38, -3.4e38, 1.3e36, 0, 1], [0, -0.0, 0, 0, 0], [-1, 0, 0, 0, 0], ONES], "float32")
def test_rows_are_rounded_as_the_oracle_rounds(rows: list[list[float]], dtype: Any) -> None:
    """Rows of zeros too; those below LEAST count as such."""
    x = jnp.asarray(np.array(rows, np.float32)).astype(dtype)
    wide = np.asarray(x).astype(np.float32)
    found = jax.jit(round_rows)(x, jnp.int32([len(rows)]))
    codes, scales = smoothquant.quantise_rows(wide)
    np.testing.assert_array_equal(found.codes[:, :5], codes)
    np.testing.assert_array_equal(found.scales, scales[:, 0])
    np.testing.assert_array_equal(found.firsts, -128 * codes.astype(np.int32).sum(axis=1))
    assert not np.asarray(found.codes)[:, 5:].any()


@pytest.mark.parametrize("size", [15, 16, 17, 40])
@pytest.mark.parametrize("dtype", [*DTYPES, jnp.float16])
@pytest.mark.parametrize("from_end", [False, True])
def test_the_largest_is_found_anywhere(size: int, dtype: Any, from_end: bool) -> None:
    place = size - 1 if from_end else 0
    x = jnp.asarray(np.ones((2, size)), dtype).at[1, place].set(-254)
    found = round_rows(x, jnp.int32([2]))
    assert found.scales.tolist() == [np.float32(1) / np.float32(127), 2]
    assert found.codes[1, place] == -127 and found.codes[0, place] == 127


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 20])
def test_what_is_not_finite_spoils_its_row_alone(value: float, place: int) -> None:
    x, (codes, scales) = numbers(0, 3, 21), weights(1, 7, 21)
    expected = by_oracle(x, codes, scales)
    x[1, place] = value
    expected[1] = np.nan
    np.testing.assert_array_equal(times(x, codes, scales), expected)


@pytest.mark.parametrize("tokens", [1, ROWS + 3])
def test_chunks_of_several_panels_of_which_the_last_is_not_full(tokens: int) -> None:
    x, (codes, scales) = numbers(0, tokens, 24), weights(1, 2 * PANEL_CHUNKS * COLUMNS - 3, 24)
    np.testing.assert_array_equal(times(x, codes, scales), by_oracle(x, codes, scales))


def test_several_chunks_of_x() -> None:
    x, (codes, scales) = numbers(0, 2 * CHUNK_ROWS + 9, LONG), weights(1, 50, LONG)
    np.testing.assert_array_equal(times(x, codes, scales), by_oracle(x, codes, scales))


def test_the_longest_rows_have_the_largest_sums() -> None:
    """Just within int32, of either sign; a longer row might not be."""
    x = np.ones((2, MOST), np.float32) * [[1], [-1]]
    codes, scales = np.full((2, MOST), -128, np.int8), np.ones(2, np.float32)
    codes[1] = 127
    found = times(x.astype(np.float32), codes, scales)
    np.testing.assert_array_equal(found, by_oracle(x.astype(np.float32), codes, scales))
    assert -(2.0**31) < 127 * 128 * MOST <= 2**31 - 1 < 127 * 128 * (MOST + 1)
    with pytest.raises(ValueError, match=rf"at most {MOST} numbers, got {MOST + 1}"):
        codes_shape(1, MOST + 1)
    with pytest.raises(ValueError, match=rf"at most {MOST} numbers, got {MOST + 1}"):
        round_rows(jnp.ones((1, MOST + 1)), jnp.int32([1]))


@pytest.mark.parametrize(("asked", "taken"), [(0, 0), (2, 2), (-1, 0), (3, 2)])
def test_the_layers_at_the_ends_and_beyond(asked: int, taken: int) -> None:
    """The other layers' scales are NaN."""
    x, (codes, scales) = numbers(0, 3, 17), weights(1, 3, 5, 17)
    expected = by_oracle(x, codes[taken], scales[taken])
    scales[np.arange(3) != taken] = np.nan
    found = times(x, codes, scales, layer=jnp.int32(asked))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("rows", [5, CHUNK_ROWS + 3])
@pytest.mark.parametrize("count", [-3, 0, 1, 5, CHUNK_ROWS + 1, 1000])
def test_padding_gives_zeros_whatever_it_holds(count: int, rows: int) -> None:
    x, (codes, scales) = numbers(0, rows, LONG), weights(1, 30, LONG)
    expected, count_in_x = by_oracle(x, codes, scales), min(max(count, 0), rows)
    x[count_in_x:] = np.nan
    expected[count_in_x:] = 0
    found = times(x, codes, scales, num_rows=jnp.int32(count))
    np.testing.assert_array_equal(found, expected)


def test_several_threads_at_once() -> None:
    x, (codes, scales) = numbers(0, 9, 300), weights(1, 4, 400, 300)
    held = packed(codes, scales)
    run = partial(product, jnp.asarray(x), *held, width=400)
    with ThreadPoolExecutor(4) as pool:
        calls = [(n % 4, pool.submit(run, layer=jnp.int32(n % 4))) for n in range(100)]
    for layer, call in calls:
        np.testing.assert_array_equal(call.result(), by_oracle(x, codes[layer], scales[layer]))


@pytest.mark.parametrize(
    ("rows", "padding"),
    [([0, 2, 0, ROWS + 1, 1], 0), ([0, 0, 0, 3, 0], 2), ([0] * 5, 4), ([40, 0, 71, 2, 9], 3)],
)
@pytest.mark.parametrize("layered", [False, True])
def test_groups_have_weights_of_their_own(rows: list[int], padding: int, layered: bool) -> None:
    """The scales of a group without rows are NaN."""
    x, (codes, scales) = numbers(9, sum(rows) + padding, 53), weights(1, 2, 5, COLUMNS + 7, 53)
    expected = by_groups(x, codes[1], scales[1], rows)
    scales[:, [count == 0 for count in rows]] = np.nan
    scales[0] = np.nan
    x[sum(rows) :] = np.nan
    held = packed(codes, scales) if layered else packed(codes[1], scales[1])
    starts = jnp.asarray(np.cumsum([0, *rows]), jnp.int32)
    options = {"width": COLUMNS + 7, "layer": jnp.int32(int(layered))}
    found = grouped_linear(jnp.asarray(x), W8A8Weights(*held), starts, **options)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("starts", [[0, 9, 2, 4], [0, -1, 3, 99], [0, 0, 4, 4], [0, 3, 1, 2]])
def test_starts_out_of_order_stay_within_x(starts: list[int]) -> None:
    """No sort makes such starts. A group then begins where the one before it ends."""
    x, (codes, scales) = numbers(0, 4, 17), weights(1, 3, 5, 17)
    ends = np.clip(np.maximum.accumulate(starts), 0, 4)
    options = {"width": 5, "layer": jnp.int32(0)}
    held = W8A8Weights(*packed(codes, scales))
    found = grouped_linear(jnp.asarray(x), held, jnp.int32(starts), **options)
    np.testing.assert_array_equal(found, by_groups(x, codes, scales, np.diff(ends).tolist()))


def test_panels_of_another_shape_are_refused() -> None:
    held, x = packed(*weights(0, 2, COLUMNS - 2, 40)), jnp.ones((2, 40))
    message = rf"weight \[{COLUMNS + 1}, 40\] must be \(2, 16, {4 * COLUMNS}\), got \(2, 1, 16"
    with pytest.raises(ValueError, match=message):
        linear(x, W8A8Weights(*held), width=COLUMNS + 1)
    with pytest.raises(ValueError, match=r"of 1 groups must be \[1, \.\.\.\] or \[layers, 1, "):
        grouped_linear(
            x, W8A8Weights(*held), jnp.int32([0, 2]), width=COLUMNS - 2, layer=jnp.int32(0)
        )


def test_a_stack_is_not_copied() -> None:
    def all_layers(x: jax.Array, *held: jax.Array) -> jax.Array:
        def step(x: jax.Array, layer: jax.Array) -> tuple[jax.Array, None]:
            return linear(x, W8A8Weights(*held), width=48, layer=layer), None

        return jax.lax.scan(step, x, jnp.arange(len(held[0]), dtype=jnp.int32))[0]

    x, held = jnp.ones((2, 48)), packed(*weights(1, 5, 48, 48))
    compiled = jax.jit(all_layers).lower(x, *held).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < held[0].nbytes // len(held[0])


@pytest.mark.parametrize(("way", "needs"), WAYS, ids=lambda one: getattr(one, "__name__", ""))
def test_every_way_to_multiply_bytes(way: type[Bytes], needs: tuple[str, ...]) -> None:
    """The largest products too, which narrower sums could not hold; columns beyond are kept."""
    if not all(map(processor_has, needs)):
        pytest.skip("this processor lacks the instruction")
    kernel, rows, depth, columns = byte_kernel_of(3, way), 2, 7, COLUMNS - 3

    @njit
    def run(x: int, firsts: int, scales: int, panel: int, of_panel: int, out: int) -> None:
        left, right = (x, 4 * depth, rows - 1, firsts, scales), (panel, of_panel, depth)
        kernel(*left, *right, out, 4 * COLUMNS, columns, panel, 0)

    x, (codes, scales) = numbers(5, rows, 4 * depth), weights(6, COLUMNS, 4 * depth)
    x[0], codes[:2] = 1, [[127], [-128]]
    rounded, of_rows = smoothquant.quantise_rows(x)
    held, of_panel = packed(codes, scales)
    firsts = -128 * rounded.astype(np.int32).sum(axis=1, dtype=np.int32)
    out = np.full((3, COLUMNS), 77, np.float32)
    arrays = [rounded, firsts, of_rows, np.asarray(held), np.asarray(of_panel), out]
    run(*(array.ctypes.data for array in arrays))
    expected = np.full_like(out, 77)
    expected[:rows, :columns] = by_oracle(x, codes, scales)[:, :columns]
    np.testing.assert_array_equal(out, expected)
