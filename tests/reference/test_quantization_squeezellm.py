"""SqueezeLLM: worked by hand after `QuantLinearLUT.pack2`, and numbers at random."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.quantization import squeezellm
from reference.quantization.bits import pack_stream

seeds = st.integers(0, 2**32 - 1)


def test_outputs_have_tables_of_their_own() -> None:
    words = np.array([[0x76543210, 0x01234567]], np.int32)
    tables = np.stack([np.arange(16), -np.arange(16) / 2]).astype(np.float16)
    weights = squeezellm.decode(squeezellm.Tensors(words, tables), 4)
    assert weights.tolist() == [[0, 1, 2, 3, 4, 5, 6, 7], [-3.5, -3, -2.5, -2, -1.5, -1, -0.5, 0]]


def test_codes_of_three_bits_cross_words() -> None:
    """Input 10 has two bits of the first word and one of the second; input 31 ends the third."""
    words = np.array([[0b01 << 30], [0b1], [0b111 << 29]], np.uint32).view(np.int32)
    table = np.arange(0, 80, 10, dtype=np.float32)[None]
    weights = squeezellm.decode(squeezellm.Tensors(words, table), 3)
    assert np.flatnonzero(weights).tolist() == [10, 31]
    assert weights[0, [10, 31]].tolist() == [50.0, 70.0]


def test_outliers_are_added() -> None:
    """The first output has none, the second two, the third one."""
    tables = np.full((3, 16), 0.25, np.float32)
    tensors = squeezellm.Tensors(
        np.zeros((1, 3), np.int32),
        tables,
        np.array([0, 0, 2, 3], np.int32),
        np.array([1, 7, 0], np.int32),
        np.array([1.0, -2.0, 3.0], np.float32),
    )
    wanted = np.full((3, 8), 0.25, np.float32)
    wanted[1, 1], wanted[1, 7], wanted[2, 0] = 1.25, -1.75, 3.25
    np.testing.assert_array_equal(squeezellm.decode(tensors, 4), wanted)


def test_as_many_numbers_as_codes_are_kept_as_they_are() -> None:
    x = np.tile(np.arange(8, dtype=np.float32), (2, 4))
    np.testing.assert_array_equal(squeezellm.decode(squeezellm.quantise(x, 3), 3), x)


def test_outliers_do_not_widen_the_table() -> None:
    """Eight numbers are left for eight codes. Zero takes the places of the two outliers."""
    x = np.tile(np.arange(8, dtype=np.float32) - 3, (1, 4))
    x[0, 5], x[0, 30] = 1000.0, -2000.0
    tensors = squeezellm.quantise(x, 3, outliers=2)
    assert tensors.lookup_table.tolist() == [[-3, -2, -1, 0, 1, 2, 3, 4]]
    assert (tensors.rows.tolist(), tensors.cols.tolist()) == ([0, 2], [5, 30])
    assert tensors.vals.tolist() == [1000.0, -2000.0]
    np.testing.assert_array_equal(squeezellm.decode(tensors, 3), x)


def test_a_cluster_without_numbers_stays() -> None:
    """The two middle quantiles are between the numbers; every number has a nearer middle."""
    x = np.array([[0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]], np.float32)
    tensors = squeezellm.quantise(x, 4)
    assert np.unique(tensors.lookup_table).tolist() == [0.0, 0.28125, 0.71875, 1.0]
    np.testing.assert_array_equal(squeezellm.decode(tensors, 4), x)


@pytest.mark.parametrize("bits", [3, 4])
@given(seed=seeds, outliers=st.integers(0, 3))
def test_each_number_is_the_nearest_in_its_table(bits: int, seed: int, outliers: int) -> None:
    """Outliers are exact but for the rounding of a sum."""
    x = np.random.default_rng(seed).standard_t(3, (3, 64)).astype(np.float32)
    tensors = squeezellm.quantise(x, bits, outliers)
    off = np.abs(squeezellm.decode(tensors, bits) - x)
    nearest = np.abs(x[..., None] - tensors.lookup_table[:, None]).min(axis=-1)
    smallest_outlier = -np.sort(-np.abs(x), axis=1)[:, [outliers]]
    ordinary = np.abs(x) <= smallest_outlier
    np.testing.assert_array_equal(off[ordinary], nearest[ordinary])
    assert (off[~ordinary] <= np.abs(x[~ordinary]) * 1e-6).all()
    assert (~ordinary).sum() == 3 * outliers


@pytest.mark.parametrize("bits", [3, 4])
@given(seed=seeds)
def test_unpack_is_the_opposite_of_pack(bits: int, seed: int) -> None:
    """A table of the codes themselves."""
    codes = np.random.default_rng(seed).integers(0, 2**bits, (5, 64), np.uint8)
    words = np.ascontiguousarray(pack_stream(codes, bits, squeezellm.WORD).T)
    table = np.tile(np.arange(2**bits, dtype=np.float16), (5, 1))
    decoded = squeezellm.decode(squeezellm.Tensors(words, table), bits)
    np.testing.assert_array_equal(decoded, codes)
