"""`merge_partials`: split the context anywhere, in any number of parts, and join again (I42)."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference.attention as reference
from pallas_kernels import merge_partials

PARTS, HEADS, DIM, KEYS = 5, 3, 4, 12
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}
seeds = st.integers(0, 2**32 - 1)


def split(seed: int, cuts: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The oracle's partial results between the cuts, and its result over all keys."""
    rng = np.random.default_rng(seed)
    scores = 5 * rng.standard_normal((HEADS, KEYS), np.float32)
    values = rng.standard_normal((KEYS, DIM), np.float32)
    edges = [0, *sorted(cuts), KEYS]
    out = np.zeros((len(edges) - 1, HEADS, DIM), np.float32)
    lse = np.zeros((len(edges) - 1, HEADS), np.float32)
    for p, (a, b) in enumerate(itertools.pairwise(edges)):
        for h in range(HEADS):
            out[p, h], lse[p, h] = reference.partial_attention(scores[h, a:b], values[a:b])
    whole = [reference.softmax_attention(s, values) for s in scores]
    return out, lse, np.array(whole, np.float32)


def merge(out: np.ndarray, lse: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    merged, total = merge_partials(jnp.asarray(out), jnp.asarray(lse))
    return np.asarray(merged), np.asarray(total)


@given(seeds, st.lists(st.integers(0, KEYS), max_size=PARTS - 1))
def test_i42_any_number_of_parts_gives_the_whole(seed: int, cuts: list[int]) -> None:
    out, lse, whole = split(seed, cuts)
    merged, total = merge(out, lse)
    np.testing.assert_allclose(merged, whole, **TOLERANCE)
    np.testing.assert_allclose(total, reference.merge_partials(out, lse)[1], **TOLERANCE)


@given(seeds, st.lists(st.integers(0, KEYS), min_size=2, max_size=2))
def test_i42_merging_is_associative(seed: int, cuts: list[int]) -> None:
    out, lse, _ = split(seed, cuts)
    first, first_lse = merge(out[:2], lse[:2])
    last, last_lse = merge(out[1:], lse[1:])
    left = merge(np.stack([first, out[2]]), np.stack([first_lse, lse[2]]))
    right = merge(np.stack([out[0], last]), np.stack([lse[0], last_lse]))
    np.testing.assert_allclose(left[0], right[0], **TOLERANCE)
    np.testing.assert_allclose(left[1], right[1], **TOLERANCE)


@given(seeds, st.lists(st.integers(0, KEYS), min_size=2, max_size=2), st.integers(0, 3))
def test_i42_an_empty_part_is_neutral_whatever_it_holds(
    seed: int, cuts: list[int], place: int
) -> None:
    out, lse, _ = split(seed, cuts)
    more = np.insert(out, place, np.nan, axis=0)
    more_lse = np.insert(lse, place, -np.inf, axis=0)
    for got, expected in zip(merge(more, more_lse), merge(out, lse), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_nothing_but_empty_parts_is_empty() -> None:
    merged, total = merge(np.full((2, HEADS, DIM), np.nan), np.full((2, HEADS), -np.inf))
    assert not merged.any()
    assert np.isneginf(total).all()


def test_half_precision_is_merged_in_float32() -> None:
    out = jnp.array([[1.0], [1.0 + 2**-7]], jnp.bfloat16)
    merged, total = merge_partials(out, jnp.zeros(2, jnp.bfloat16))
    assert merged.dtype == jnp.bfloat16
    assert total.dtype == jnp.float32
    assert total == np.log(np.float32(2))


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("shape", [(2, 4), (2, 3, 1), (0, 3)])
def test_shapes_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="shape"):
        merge_partials(jnp.zeros((shape[0], 3, 4)), jnp.zeros(shape))
