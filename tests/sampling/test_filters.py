"""Top-n-sigma, top-k and top-p row by row, beside filters that sort."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine.sampling import filters

FEW, MANY = 40, filters.CANDIDATES + 60
OFF = (0.0, 0, 1.0)


def spread(rows: int, vocab: int, scale: float, seed: int = 3) -> np.ndarray:
    """Logits of both signs in no order, a few of them twice, a few of them -inf."""
    random = np.random.default_rng(seed)
    logits = np.stack([random.permutation(vocab) for _ in range(rows)]).astype(np.float32)
    logits = (logits - vocab / 3) * np.float32(scale)
    logits[:, random.integers(0, vocab, 3)] = logits[:, random.integers(0, vocab, 3)]
    logits[:, random.integers(0, vocab, 4)] = -np.inf
    return logits


def kept(row: np.ndarray, n_sigma: float, k: int, p: float) -> np.ndarray:
    """Which tokens are left: each filter after the one before, by the whole order of the row."""
    row = row.astype(np.float64)
    left = np.isfinite(row)
    if n_sigma > 0:
        left &= row >= row.max() - n_sigma * row[np.isfinite(row)].std()
    if 0 < k < len(row):
        left &= row >= np.sort(row)[::-1][k - 1]
    if p < 1:
        weights = np.where(left, np.exp(row - row.max()), 0)
        order = np.argsort(-row)
        mass = np.cumsum(weights[order]) / weights.sum()
        assert abs(mass - p).min() > 1e-5, "rounding decides"
        left &= row >= row[order][np.argmax(mass > p)]
    return left


def check(logits: np.ndarray, settings: list[tuple[float, int, float]]) -> None:
    columns = [np.array(column) for column in zip(*settings, strict=True)]
    n_sigma, k, p = (
        column.astype(kind)
        for column, kind in zip(columns, ("f4", "i4", "f4"), strict=True)
    )  # fmt: skip
    lowest = np.asarray(jax.jit(filters.lowest_kept)(logits, n_sigma, k, p))
    for row, least, setting in zip(logits, lowest, settings, strict=True):
        found = (row >= least) & np.isfinite(row)
        assert found.tolist() == kept(row, *setting).tolist(), setting
    assert lowest.dtype == np.float32


SETTINGS: dict[str, list[tuple[float, int, float]]] = {
    "none": [OFF] * 3,
    "one row of sigma": [OFF, (1.0, 0, 1.0), (0.4, 0, 1.0)],
    "k": [(0, k, 1.0) for k in (1, 2, 30, 0, 255, 256, 257, 258, MANY - 1, MANY, MANY + 5, 3)],
    "k beyond the candidates": [(0, 257, 1.0), (0, MANY - 1, 1.0)],
    "k among the candidates": [(0, k, 1.0) for k in (1, 2, 38, 0, 39, 40, 41)],
    "p": [(0, 0, p) for p in (0.02, 0.3, 0.71, 0.95, 1.0, 0.999)],
    "k and p": [(0, 5, 0.4), (0, 300, 0.985), OFF, (0, 280, 0.5), (0, 2, 0.99), (0, 0, 0.9)],
    "all": [(1.1, 0, 0.6), (0.2, 9, 0.95), (2.0, 290, 0.97), (0, 3, 1.0), (0.5, 1, 1.0), OFF],
}


@pytest.mark.parametrize("vocab", [FEW, MANY])
@pytest.mark.parametrize("scale", [0.002, 0.3])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_each_row_keeps_what_its_own_filters_leave(
    settings: list[tuple[float, int, float]], scale: float, vocab: int
) -> None:
    """Flat rows, of which top-p keeps more than the partial sort finds, and steep ones."""
    check(spread(len(settings), vocab, scale), settings)


def test_logits_may_be_large() -> None:
    """Their exponentials are not: only differences to the largest one count."""
    settings = SETTINGS["p"]
    for offset in (-300, 300):
        check(spread(len(settings), MANY, 0.3) + np.float32(offset), settings)


@pytest.mark.parametrize("vocab", [FEW, MANY])
def test_all_that_tie_with_the_last_one_are_kept(vocab: int) -> None:
    logits = np.tile(np.float32([2, 0, 1, 1] * (vocab // 4)), (4, 1))
    k = np.array([1, vocab // 4 + 1, vocab // 4, 3 * vocab // 4 + 1], np.int32)
    ones = np.ones(4, np.float32)
    lowest = jax.jit(filters.lowest_kept)(logits, 0 * ones, k, ones)
    assert lowest.tolist() == [2, 1, 2, 0]


def test_a_mass_that_just_reaches_p_is_enough() -> None:
    """Two tokens, and the p that the first has by itself, to the last bit."""
    second = np.exp(np.float32(-1))
    p = np.float32(1) / (1 + second)
    assert p * (1 + second) == 1
    least = np.nextafter(p, np.float32(1))
    logits, off = np.float32([[0, -1]] * 2), np.zeros(2, np.float32)
    lowest = jax.jit(filters.lowest_kept)(logits, off, off.astype(np.int32), np.array([p, least]))
    assert lowest.tolist() == [0, -1]


def threshold(logits: Any, weights: Any, wanted: Any) -> list[float]:
    found = jax.jit(filters._largest_threshold)(
        np.array(logits, np.float32), np.array(weights, np.float32), np.array(wanted, np.float32)
    )
    return np.asarray(found).tolist()


def test_the_largest_threshold_is_a_logit_that_just_reaches_the_mass() -> None:
    row = [-3.5, 7.25, -0.0, 0.5, -1e30, 3e38, 1e-30, -np.inf]
    weights = [1, 2, 4, 8, 16, 32, 64, 128]
    wanted = [32, 33, 34, 42, 43, 106, 110, 111, 127, 128]
    reached = [3e38, 7.25, 7.25, 0.5, 1e-30, 1e-30, 0.0, -3.5, -1e30, -np.inf]
    many = len(wanted)
    found = threshold([row] * many, [weights] * many, wanted)
    assert found == np.array(reached, np.float32).tolist()
    assert threshold([row], [weights], [300]) == [-np.inf], "no threshold does"


def test_the_bits_of_floats_have_the_order_of_the_floats() -> None:
    values = np.float32([-np.inf, -3e38, -2, -1e-40, -0.0, 0.0, 1e-40, 1, 1.5, 3e38, np.inf])
    keys = np.asarray(filters._to_ordered_bits(jnp.asarray(values)))
    assert (np.diff(keys.astype(np.int64)) > 0).all() and keys.dtype == np.uint32
    back = np.asarray(filters._from_ordered_bits(jnp.asarray(keys)))
    assert back.view(np.uint32).tolist() == values.view(np.uint32).tolist()
    assert filters._from_ordered_bits(jnp.uint32(0)) == -np.inf
