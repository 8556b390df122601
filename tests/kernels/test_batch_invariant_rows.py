"""Products, norms and sums of logits that never depend on the number of rows. Interpreted."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pallas_kernels import batch_invariant
from pallas_kernels.triton.product import PROGRAMS, TILE_W, cut_of
from pallas_kernels.triton.row_sums import STEP

ROWS = 150  # three tiles, the last one not full
# (out, in): less than a tile; no multiple of a tile or a step; in float32 whole steps, cut into
# parts of two and a last one of one
MATRICES = ((5, 3), (200, 100), (130, 1120))
RNG = np.random.default_rng(0)
DTYPES = ("float32", "bfloat16", "float16")


def numbers(*shape: int, dtype: str = "float32") -> jax.Array:
    return jnp.asarray(RNG.standard_normal(shape), dtype)


WEIGHTS = {
    (dtype, size): (numbers(ROWS, size[1], dtype=dtype), numbers(2, *size, dtype=dtype))
    for dtype in DTYPES
    for size in MATRICES
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", MATRICES)
def test_products_are_right(size: tuple[int, int], dtype: str) -> None:
    x, weights = WEIGHTS[dtype, size]
    for layer in (0, 1):
        got = batch_invariant.matmul(x, weights, layer, dtype=jnp.float32)
        expected = np.asarray(x, np.float64) @ np.asarray(weights[layer], np.float64).T
        np.testing.assert_allclose(got, expected, atol=2e-4)
    assert batch_invariant.matmul(x, weights, 0, dtype=jnp.bfloat16).dtype == jnp.bfloat16


@pytest.mark.slow
@given(
    st.sampled_from(list(WEIGHTS)),
    st.sampled_from([1, 2, 63, 65, ROWS]),
    st.integers(0, ROWS - 1),
    st.sampled_from(["float32", "bfloat16"]),
)
@example(("float32", (130, 1120)), 1, 149, "float32")
@example(("bfloat16", (130, 1120)), 1, 149, "float32")
@settings(max_examples=30)
def test_a_row_s_product_depends_on_nothing_else(
    case: tuple[str, tuple[int, int]], count: int, first: int, out: str
) -> None:
    """The row may be in another place of a tile, beside other rows, or alone."""
    x, weights = WEIGHTS[case]
    every = batch_invariant.matmul(x, weights, 1, dtype=out)
    some = np.arange(first, first + count) % ROWS
    found = batch_invariant.matmul(x[some], weights, 1, dtype=out)
    np.testing.assert_array_equal(found, every[some])


@pytest.mark.parametrize("size", [(1, 1), (5, 3), (2048, 8192), (8192, 2048), (128256, 4096)])
def test_parts_cover_the_columns(size: tuple[int, int]) -> None:
    cut = cut_of(*size, "bfloat16")
    steps = -(-size[1] // cut.columns)
    assert (cut.parts - 1) * cut.steps < steps <= cut.parts * cut.steps
    tiles = -(-size[0] // TILE_W)
    assert cut.parts == 1 or (cut.parts - 1) * tiles < PROGRAMS


def test_the_last_part_of_a_matrix_above_is_shorter() -> None:
    columns, steps, parts = cut_of(*MATRICES[-1], "float32")
    assert (steps, parts) == (2, 18) and MATRICES[-1][1] == 35 * columns


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize(
    ("width", "dtype", "residual_dtype"),
    [(1, "bfloat16", "float32"), (48, "float32", "bfloat16"), (130, "bfloat16", "float32")],
)
def test_norms_are_right_and_depend_on_their_row_alone(
    kind: Any, width: int, dtype: str, residual_dtype: str
) -> None:
    """They are so beside NaN, and with a weight for each of two heads."""
    x, residual = numbers(6, width, dtype=dtype), numbers(6, width, dtype=residual_dtype)
    weight, bias = numbers(2, width), numbers(2, width)
    how: dict[str, Any] = {"kind": kind, "eps": 1e-5, "dtype": jnp.float32}
    got, total = batch_invariant.norm(x, weight, bias, residual=residual, **how)
    assert total is not None
    np.testing.assert_array_equal(total, (x + residual).astype(residual_dtype))
    wide = np.asarray(total, np.float64)
    centred = wide - wide.mean(1, keepdims=True) if kind == "layer" else wide
    expected = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    expected = expected * np.tile(weight, (3, 1)) + np.tile(bias, (3, 1))
    np.testing.assert_allclose(got, expected, atol=1e-5, rtol=1e-5)
    pair = slice(2, 4)
    alone, _ = batch_invariant.norm(x[pair], weight, bias, residual=residual[pair], **how)
    np.testing.assert_array_equal(alone, got[pair])
    beside, nothing = batch_invariant.norm(total.at[0].set(jnp.nan), weight, bias, **how)
    assert nothing is None
    np.testing.assert_array_equal(beside[1:], got[1:])


@pytest.mark.parametrize("vocabulary", [1, 101, STEP, STEP + 1, 3 * STEP - 5])
def test_logsumexp_is_right_and_depends_on_its_row_alone(vocabulary: int) -> None:
    x = 10 * numbers(5, vocabulary)
    x = x.at[1].set(-jnp.inf).at[2, 0].set(-jnp.inf).at[3].add(1000.0)
    got = batch_invariant.logsumexp(x)
    np.testing.assert_allclose(got, jax.nn.logsumexp(x, axis=1), rtol=1e-6, atol=1e-5)
    for row in range(5):
        np.testing.assert_array_equal(batch_invariant.logsumexp(x[row : row + 1])[0], got[row])


@pytest.mark.usefixtures("unchecked_shapes")
def test_what_does_not_match_is_refused() -> None:
    x, weights = numbers(3, 8), numbers(2, 5, 8)
    with pytest.raises(ValueError, match=r"expected x \[T, in\], weights \[L, out, in\]"):
        batch_invariant.matmul(x[:, :7], weights, 0, dtype=x.dtype)
    with pytest.raises(ValueError, match=r"expected x \[T, in\].* x.shape=\(0, 8\)"):
        batch_invariant.matmul(x[:0], weights, 0, dtype=x.dtype)
    with pytest.raises(ValueError, match="x and weights of one dtype, of float32, bfloat16"):
        batch_invariant.matmul(x.astype(jnp.bfloat16), weights, 0, dtype=x.dtype)
    how: dict[str, Any] = {"kind": "rms", "eps": 0.0, "dtype": x.dtype}
    for weight, bias, residual in (
        (numbers(1, 7), None, None),
        (numbers(2, 8), None, None),  # three rows
        (numbers(1, 8), numbers(3, 8), None),
        (numbers(1, 8), None, numbers(2, 8)),
    ):
        with pytest.raises(ValueError, match="R a multiple of W"):
            batch_invariant.norm(x, weight, bias, residual=residual, **how)
