"""GPTQ: the columns of a matrix are rounded one after another, and those that are left make up for
the error. What counts is the error of the outputs on calibration inputs x, so that columns are
weighed by the Hessian, the sum of x x^T (Frantar et al., "GPTQ", 2022).

With U the upper Cholesky factor of the Hessian's inverse, rounding column i by e costs the columns
j > i the update -e U[i, j] / U[i, i]. Updates of columns beyond a block are made once a block.
"""

import numpy as np

from jax_engine.errors import WeightsError
from jax_engine.quantize.grids import Grid, Shared
from jax_engine.quantize.rounding import Coded

BLOCK = 128  # columns


def solve(
    x: np.ndarray,
    hessian: np.ndarray,
    grid: Grid,
    group: int,
    *,
    damping: float,
    act_order: bool,
) -> Coded:
    """Codes of the matrix x, float32[N, K].

    Args:
        hessian: float64[K, K], the sum of x x^T over inputs, by any factor.
        group: columns of a group, which K is a multiple of. A group's grid is chosen when its first
            column is reached, of its columns as they are then.
        damping: added to the diagonal, as a part of its mean.
        act_order: columns with large inputs come first.

    Raises:
        WeightsError: the Hessian is not finite, or not positive even with the damping.
    """
    num_outputs, num_inputs = x.shape
    hessian = np.array(hessian, np.float64)
    diagonal = hessian.diagonal().copy()
    if not np.isfinite(hessian).all():
        raise WeightsError("calibration: the inputs of a matrix are not finite.")
    order = np.arange(num_inputs)
    if act_order:
        order = np.argsort(-diagonal, kind="stable")
    silent = diagonal == 0  # these inputs never occur: the nearest codes are as good as any
    hessian[silent, silent] = 1.0
    hessian[np.diag_indices(num_inputs)] += damping * diagonal.mean()
    factor = _factor(hessian[np.ix_(order, order)]).astype(np.float32)
    codes, shared = _columns(x[:, order].astype(np.float32), factor, grid, group)
    placed = np.empty((num_outputs, num_inputs), np.uint8)
    placed[:, order] = codes
    groups = np.empty(num_inputs, np.int32)
    groups[order] = np.arange(num_inputs, dtype=np.int32) // group
    return Coded(placed, *shared, groups)


def _factor(hessian: np.ndarray) -> np.ndarray:
    """The upper triangular U with U^T U the inverse."""
    try:
        inverse = np.linalg.inv(hessian)
        lower = np.linalg.cholesky((inverse + inverse.T) / 2)
    except np.linalg.LinAlgError:
        raise WeightsError(
            "calibration: the Hessian of a matrix is singular; give more samples, or more damping."
        ) from None
    return np.asarray(lower.T)


def _columns(
    left: np.ndarray, factor: np.ndarray, grid: Grid, group: int
) -> tuple[np.ndarray, Shared]:
    """The codes of all columns, and what groups share. `left` is overwritten."""
    num_outputs, num_inputs = left.shape
    codes = np.empty((num_outputs, num_inputs), np.uint8)
    scales = np.empty((num_outputs, num_inputs // group), np.float32)
    zeros = np.empty(scales.shape, np.int16)
    block = BLOCK if group == num_inputs or BLOCK % group == 0 or group % BLOCK == 0 else group
    for start in range(0, num_inputs, block):
        stop = min(start + block, num_inputs)
        errors = np.empty((num_outputs, stop - start), np.float32)
        for column in range(start, stop):
            number, place = divmod(column, group)
            if place == 0:
                chosen = grid.choose(left[:, column : column + group])
                scales[:, number], zeros[:, number] = chosen
            shared = Shared(scales[:, number], zeros[:, number])
            here = left[:, column : column + 1]
            code = grid.encode(here, shared)
            codes[:, column] = code[:, 0]
            error = (here - grid.decode(code, shared))[:, 0] / factor[column, column]
            left[:, column + 1 : stop] -= np.outer(error, factor[column, column + 1 : stop])
            errors[:, column - start] = error
        left[:, stop:] -= errors @ factor[start:stop, stop:]
    return codes, Shared(scales, zeros)
