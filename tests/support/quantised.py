"""What the tests of quantised weights share: golden arrays, and matrices at random."""

from functools import cache
from pathlib import Path

import numpy as np

FILE = Path(__file__).parents[1] / "golden" / "quantised.npz"


@cache
def _every() -> dict[str, np.ndarray]:
    with np.load(FILE) as arrays:
        return dict(arrays)


def golden(case: str) -> dict[str, np.ndarray]:
    """The arrays of one case (`tests.golden.make_quantised` says what they are)."""
    prefix = f"{case}/"
    return {k.removeprefix(prefix): v for k, v in _every().items() if k.startswith(prefix)}


def normal(seed: int, *shape: int) -> np.ndarray:
    """Normal numbers, in rows of very different sizes."""
    rng = np.random.default_rng(seed)
    sizes = 4.0 ** rng.integers(-4, 4, (*shape[:-1], 1))
    return (sizes * rng.normal(size=shape)).astype(np.float32)


def assert_same_bits(ours: np.ndarray, theirs: np.ndarray) -> None:
    """All bits but those of NaNs; zeros of either sign are alike."""
    assert ours.dtype == theirs.dtype == np.float32
    np.testing.assert_array_equal(ours, theirs)


def assert_within_half_a_step(x: np.ndarray, decoded: np.ndarray, steps: np.ndarray) -> None:
    """Half a step and float32's rounding of a scale, a quotient and a product: 3 times 2^-24."""
    off = np.abs(decoded.astype(np.float64) - x)
    assert (off <= steps.astype(np.float64) / 2 + np.abs(x) * 2.0**-22).all()
