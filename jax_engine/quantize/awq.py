"""AWQ: inputs that are large get finer steps, and ranges are cut where that pays.

Scales of inputs are their mean sizes to the power of an exponent, of which a grid is tried. All
matrices with the same inputs share them (Lin et al., "AWQ", 2023). What is compared is the error of
the products on the calibration inputs; the paper compares that of a whole block.
"""

from collections.abc import Callable, Sequence

import numpy as np

from jax_engine.quantize.grids import Grid, Shared
from jax_engine.quantize.rounding import Coded, round_to_nearest
from jax_engine.quantize.statistics import Inputs

EXPONENTS = [step / 20 for step in range(20)]  # with 0 nothing is scaled
SHRINKS = [1 - step / 20 for step in range(11)]  # of the extremes of a group: 1 to 0.5
LEAST = 1e-4  # sizes of inputs below this part of the largest count as this


def best_scales(
    weights: Sequence[np.ndarray],
    inputs: Inputs,
    grid: Grid,
    group: int,
    possible: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> np.ndarray:
    """Scales float32[K] of the inputs of matrices float32[N, K].

    Args:
        possible: the scales that can be had in place of wanted ones.
    """
    candidates = [possible(scales_for(inputs, exponent)) for exponent in EXPONENTS]
    errors = [product_error(weights, inputs, grid, group, scales) for scales in candidates]
    return candidates[int(np.argmin(errors))]


def scales_for(inputs: Inputs, exponent: float) -> np.ndarray:
    """The sizes of inputs to this power, the middle between the extremes at one."""
    sizes = np.maximum(inputs.sizes, max(LEAST * inputs.sizes.max(), np.finfo(np.float32).tiny))
    powers = sizes**exponent
    return np.asarray((powers / np.sqrt(powers.max() * powers.min())).astype(np.float32))


def product_error(
    weights: Sequence[np.ndarray], inputs: Inputs, grid: Grid, group: int, scales: np.ndarray
) -> float:
    """The sum of the squared errors of all outputs, if columns are scaled and then rounded."""
    found = 0.0
    for weight in weights:
        numbers = round_to_nearest(weight * scales, grid, group).numbers(grid)
        found += float(inputs.errors(numbers / scales - weight).sum())
    return found


def cut(weight: np.ndarray, inputs: Inputs, grid: Grid, group: int) -> Coded:
    """Codes with the extremes of groups shrunk as the error of the product is least.

    Groups are looked at one by one, as if the others had no error. A row whose error is larger in
    the end is rounded without.
    """
    plain = round_to_nearest(weight, grid, group)
    grouped = weight.reshape(len(weight), -1, group)
    count = grouped.shape[1]
    each = np.arange(count)
    blocks = inputs.products.reshape(count, group, count, group)
    own = blocks[each, :, each].astype(np.float32)  # [G, g, g]
    least = np.full(grouped.shape[:2], np.inf)
    scales, zeros = plain.scales.copy(), plain.zeros.copy()
    for shrink in SHRINKS:
        shared = grid.choose(grouped * np.float32(shrink))
        change = (grid.decode(grid.encode(grouped, shared), shared) - grouped).swapaxes(0, 1)
        errors = ((change @ own) * change).sum(axis=-1).T
        better = errors < least
        least = np.where(better, errors, least)
        scales, zeros = (
            np.where(better, shared.scales, scales),
            np.where(better, shared.zeros, zeros),
        )
    codes = grid.encode(grouped, Shared(scales, zeros)).reshape(weight.shape)
    found = Coded(codes, scales, zeros, plain.groups)
    worse = inputs.errors(found.numbers(grid) - weight) > inputs.errors(
        plain.numbers(grid) - weight
    )
    for new, old in zip(found[:3], plain[:3], strict=True):
        new[worse] = old[worse]
    return found
