"""Floats of few bits: every number, and rounding, as the package `ml_dtypes` has them."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.quantization.small_floats import E2M1, E4M3, E8M0, nearest
from tests.support.quantised import normal

seeds = st.integers(0, 2**32 - 1)
THEIRS = [
    (E2M1, ml_dtypes.float4_e2m1fn),
    (E4M3, ml_dtypes.float8_e4m3fn),
    (E8M0, ml_dtypes.float8_e8m0fnu),
]


def test_every_number_of_four_bits() -> None:
    positive = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    assert E2M1.tolist() == positive + [-x for x in positive]
    assert np.signbit(E2M1[8])


def test_numbers_of_eight_bits() -> None:
    assert E4M3[[0x01, 0x08, 0x38, 0x7E, 0xFE]].tolist() == [2**-9, 2**-6, 1.0, 448.0, -448.0]
    assert np.flatnonzero(np.isnan(E4M3)).tolist() == [0x7F, 0xFF]
    assert E8M0[[0, 127, 130, 254]].tolist() == [2.0**-127, 1.0, 8.0, 2.0**127]
    assert np.flatnonzero(~np.isfinite(E8M0)).tolist() == [255]


@pytest.mark.parametrize(("table", "dtype"), THEIRS, ids=["E2M1", "E4M3", "E8M0"])
def test_every_number_is_as_the_package_has_it(table: np.ndarray, dtype: type) -> None:
    theirs = np.arange(len(table), dtype=np.uint8).view(dtype).astype(np.float32)
    assert table.dtype == np.float32
    np.testing.assert_array_equal(table, theirs)
    np.testing.assert_array_equal(np.signbit(table[:127]), np.signbit(theirs[:127]))


def test_ties_go_to_the_even_code() -> None:
    x = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.25, -0.75], np.float32)
    wanted = [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, -0.0, -1.0]
    assert E2M1[nearest(x, E2M1)].tolist() == wanted


def test_too_large_a_number_becomes_the_largest() -> None:
    x = np.array([7.0, -99.0, np.inf], np.float32)
    assert E2M1[nearest(x, E2M1)].tolist() == [6.0, -6.0, 6.0]
    x = np.array([465.0, -1e9], np.float32)
    assert E4M3[nearest(x, E4M3)].tolist() == [448.0, -448.0]


@pytest.mark.parametrize(("table", "dtype"), THEIRS[:2], ids=["E2M1", "E4M3"])
@given(seed=seeds)
def test_rounds_as_the_package_does(table: np.ndarray, dtype: type, seed: int) -> None:
    """Numbers at random, and all that are in the middle between two."""
    positive = table[: len(table) // 2]
    positive = positive[np.isfinite(positive)]
    middles = (positive[1:] + positive[:-1]) / 2
    x = normal(seed, 8, 16).ravel().clip(-positive[-1], positive[-1])
    x = np.concatenate([x, middles, -middles])
    theirs = x.astype(dtype).astype(np.float32)
    np.testing.assert_array_equal(table[nearest(x, table)], theirs)


@pytest.mark.parametrize("table", [E2M1, E4M3], ids=["E2M1", "E4M3"])
def test_every_code_is_nearest_to_its_own_number(table: np.ndarray) -> None:
    codes = np.flatnonzero(np.isfinite(table))
    np.testing.assert_array_equal(nearest(table[codes], table), codes)
