"""SmoothQuant: large inputs are made smaller, and their columns larger.

A row of inputs shares the step of its 8-bit codes, so that one large input costs the others their
precision. Input j is divided by max |x_j|^a / max |w_j|^(1-a), with the strength a (Xiao et al.,
"SmoothQuant", 2023, equation 4).
"""

from collections.abc import Callable, Sequence

import numpy as np

from jax_engine.quantize.grids import Grid
from jax_engine.quantize.rounding import round_to_nearest
from jax_engine.quantize.statistics import Inputs

LARGEST = np.float32(127)  # a code of activations


def best_scales(
    weights: Sequence[np.ndarray],
    inputs: Inputs,
    grid: Grid,
    strength: float,
    possible: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> np.ndarray:
    """The scales float32[K], or ones if products of codes are no better with them.

    Args:
        possible: the scales that can be had in place of wanted ones.
    """
    smooth = possible(scales_for(weights, inputs, strength))
    ones = np.ones_like(smooth)
    errors = [product_error(weights, inputs, grid, scales) for scales in (ones, smooth)]
    return smooth if errors[1] < errors[0] else ones


def scales_for(weights: Sequence[np.ndarray], inputs: Inputs, strength: float) -> np.ndarray:
    """An input that is always zero, or has no weight, keeps its size."""
    largest = np.max([np.abs(weight).max(axis=0) for weight in weights], axis=0)
    unused = (inputs.largest == 0) | (largest == 0)
    x, w = (np.where(unused, np.float32(1), sizes) for sizes in (inputs.largest, largest))
    return np.asarray((x**strength / w ** (1 - strength)).astype(np.float32))


def product_error(
    weights: Sequence[np.ndarray], inputs: Inputs, grid: Grid, scales: np.ndarray
) -> float:
    """The sum of the squared errors of products of codes, on the rows that are kept."""
    x = rounded_rows(inputs.rows / scales)
    found = 0.0
    for weight in weights:
        numbers = round_to_nearest(weight * scales, grid, weight.shape[1]).numbers(grid)
        found += float(np.square(x @ numbers.T - inputs.rows @ weight.T).sum(dtype=np.float64))
    return found


def rounded_rows(x: np.ndarray) -> np.ndarray:
    """Activations float32[R, K] in codes of 8 bits, each row with a scale of its own."""
    steps = np.abs(x).max(axis=1, keepdims=True) / LARGEST
    steps = np.where(steps == 0, np.float32(1), steps)
    return np.asarray(np.rint(x / steps) * steps)
