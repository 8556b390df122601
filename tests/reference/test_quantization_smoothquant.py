"""SmoothQuant: worked by hand, and with Python's whole numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.quantization import smoothquant
from reference.quantization.compressed_tensors import Integers, decode_integers
from tests.support.quantised import assert_within_half_a_step, normal

seeds = st.integers(0, 2**32 - 1)


def test_rows_have_scales_of_their_own_and_ties_are_even() -> None:
    x = np.array([[254.0, 1.0, 3.0, -5.0], [-127.0, 0.5, -1.5, 126.5]], np.float32)
    codes, scales = smoothquant.quantise_rows(x)
    assert scales.tolist() == [[2.0], [1.0]]
    assert codes.tolist() == [[127, 0, 2, -2], [-127, 0, -2, 126]]


@pytest.mark.parametrize("size", [0, 1e-45, np.nextafter(smoothquant.LEAST, np.float32(0))])
def test_a_row_of_zeros_has_the_scale_one(size: float) -> None:
    """So has a row of numbers that are nearly zero: the smallest divided by 127 is 0."""
    codes, scales = smoothquant.quantise_rows(np.full((1, 4), size, np.float32))
    assert (codes.tolist(), scales.tolist()) == ([[0, 0, 0, 0]], [[1.0]])


def test_the_smallest_row_that_is_rounded() -> None:
    codes, scales = smoothquant.quantise_rows(np.array([[smoothquant.LEAST, 0]], np.float32))
    assert (codes.tolist(), scales.tolist()) == ([[127, 0]], [[smoothquant.LEAST / 127]])


def test_a_matrix_has_a_scale_for_each_output() -> None:
    x = np.array([[254.0, 3.0], [127.0, -1.0]], np.float32)
    weight = smoothquant.quantise(x)
    assert weight.weight_scale.tolist() == [[2.0], [1.0]]
    assert decode_integers(weight).tolist() == [[254.0, 4.0], [127.0, -1.0]]


def test_the_product_by_hand() -> None:
    """Token scales 2 and 1, output scales 0.5 and 4."""
    x = np.array([[254.0, 2.0], [127.0, -1.0]], np.float32)
    weight = Integers(np.array([[1, 100], [0, -3]], np.int8), np.array([[0.5], [4.0]], np.float32))
    assert smoothquant.linear(x, weight).tolist() == [[227.0, -24.0], [13.5, 12.0]]


def test_sums_do_not_overflow_eight_or_sixteen_bits() -> None:
    x, codes = np.full((1, 1000), 127.0, np.float32), np.full((1, 1000), -127, np.int8)
    weight = Integers(codes, np.ones((1, 1), np.float32))
    assert smoothquant.linear(x, weight).tolist() == [[-16_129_000.0]]


def test_an_unused_input_keeps_its_size() -> None:
    """An input that is always zero, and one without a weight."""
    x, w = np.array([[0.0, 9.0, 4.0]], np.float32), np.array([[9.0, 0.0, 1.0]], np.float32)
    assert smoothquant.smoothing(x, w).tolist() == [1.0, 1.0, 2.0]


def test_alpha_says_who_bears_how_much() -> None:
    """All of it the weights with 1; with 0 the activations take on what the weights had."""
    x, w = np.array([[16.0], [-64.0]], np.float32), np.array([[4.0], [-1.0]], np.float32)
    by_alpha = {alpha: smoothquant.smoothing(x, w, alpha).tolist() for alpha in (0.0, 0.5, 1.0)}
    assert by_alpha == {0.0: [0.25], 0.5: [4.0], 1.0: [64.0]}


@given(seed=seeds)
def test_smoothing_makes_inputs_and_weights_equally_large(seed: int) -> None:
    x, w = normal(seed, 8, 6), normal(seed + 1, 5, 6)
    s = smoothquant.smoothing(x, w)
    largest = np.abs(x / s).max(axis=0), np.abs(w * s).max(axis=0)
    np.testing.assert_allclose(*largest, rtol=1e-5)
    np.testing.assert_allclose((x / s) @ (w * s).T, x @ w.T, rtol=1e-3, atol=1e-3 * np.abs(x).max())


@given(seed=seeds)
def test_the_product_is_that_of_whole_numbers(seed: int) -> None:
    """Exactly: Python adds up the codes; then the token's scale, then the output's."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(-127, 128, (3, 40), np.int8)
    weight = Integers(codes, rng.uniform(0.1, 2.0, (3, 1)).astype(np.float32))
    x = normal(seed, 2, 40)
    tokens, scales = smoothquant.quantise_rows(x)
    for t, n in np.ndindex(2, 3):
        total = sum(a * b for a, b in zip(tokens[t].tolist(), codes[n].tolist(), strict=True))
        wanted = np.float32(total) * scales[t, 0] * weight.weight_scale[n, 0]
        assert smoothquant.linear(x, weight)[t, n] == wanted


@given(seed=seeds)
def test_a_matrix_is_within_half_a_step(seed: int) -> None:
    x = normal(seed, 5, 40)
    weight = smoothquant.quantise(x)
    assert_within_half_a_step(x, decode_integers(weight), weight.weight_scale)
    assert (np.abs(weight.weight).max(axis=1) == 127).all()
