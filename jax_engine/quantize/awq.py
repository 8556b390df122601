"""AWQ: inputs that are large get finer steps, and ranges are cut where that pays.

Column j of a matrix is multiplied by s_j before it is rounded, and input j is divided by it, which
the product does not notice. s_j is the mean size of input j to the power of an exponent from 0 to
0.95, tried in twenty steps. Matrices with the same inputs share it (Lin et al., "AWQ", 2023). What
is compared is the error of the products themselves; the paper compares that of the whole block.
"""

from collections.abc import Sequence

import numpy as np

from jax_engine.quantize.grids import Grid
from jax_engine.quantize.inputs import Inputs
from jax_engine.quantize.rounding import Coded, round_to_nearest

EXPONENTS = [step / 20 for step in range(20)]
SHRINKS = [1 - step / 20 for step in range(11)]  # of the extremes of a group: 1 to 0.5
LEAST = 1e-4  # the size of an input that never occurs


def best_scales(
    weights: Sequence[np.ndarray], inputs: Inputs, grid: Grid, group: int
) -> np.ndarray:
    """s float32[K] for matrices float32[N, K] with the same inputs."""
    candidates = [scales_for(inputs, exponent) for exponent in EXPONENTS]

    def error(s: np.ndarray) -> float:
        rounded = [round_to_nearest(one * s, grid, group).numbers(grid) / s for one in weights]
        return sum(inputs.error(new - old) for new, old in zip(rounded, weights, strict=True))

    return candidates[int(np.argmin([error(s) for s in candidates]))]


def scales_for(inputs: Inputs, exponent: float) -> np.ndarray:
    """The mean sizes to this power, with the middle between the extremes at one."""
    sizes = np.maximum(inputs.sizes / inputs.rows, LEAST) ** exponent
    return np.asarray((sizes / np.sqrt(sizes.max() * sizes.min())).astype(np.float32))


def cut(weight: np.ndarray, inputs: Inputs, grid: Grid, group: int) -> Coded:
    """Rounds, with the extremes of each row's groups shrunk as the error of the product is least.

    Groups are looked at one by one, as if the others had no error.
    """
    rows, groups = len(weight), weight.shape[1] // group
    blocks = inputs.products.reshape(groups, group, groups, group)
    own = blocks[np.arange(groups), :, np.arange(groups)]  # [G, g, g]
    best, shrinks = np.full((rows, groups), np.inf), np.ones((rows, groups), np.float32)
    for shrink in SHRINKS:
        one = np.full((rows, groups), shrink, np.float32)
        change = round_to_nearest(weight, grid, group, one).numbers(grid) - weight
        change = change.reshape(rows, groups, group).transpose(1, 0, 2).astype(np.float64)
        errors = ((change @ own) * change).sum(axis=-1).T
        shrinks[errors < best] = shrink
        best = np.minimum(best, errors)
    return round_to_nearest(weight, grid, group, shrinks)
