"""A matrix in codes: the grids that codes stand for, round to nearest, and GPTQ.

A grid is the numbers that the codes of a group can stand for. It is chosen from the numbers of a
group, along the last axis. Its scale is rounded to the dtype in which it is stored, and codes are
found with the rounded one. Of two codes that are as near, it is the one with an even distance from
the zero point.

Round to nearest takes each number for itself. GPTQ rounds the columns of a matrix one after
another, and those that are left make up for the error. What counts is the error of the outputs on
calibration inputs x, so that columns are weighed by the Hessian, the sum of x x^T (Frantar et al.,
"GPTQ", 2022). With U the upper Cholesky factor of the Hessian's inverse, rounding column i by e
costs the columns j > i the update -e U[i, j] / U[i, i]. Updates of columns beyond a block are made
once a block.
"""

import dataclasses
from typing import NamedTuple, Protocol

import ml_dtypes
import numpy as np

from jax_engine.errors import WeightsError

LARGEST = np.float32(448)  # in E4M3


class Shared(NamedTuple):
    """What the numbers of a group share: [...] for groups [..., n]."""

    scales: np.ndarray
    zeros: np.ndarray


class Grid(Protocol):
    """How groups of numbers are coded."""

    def choose(self, x: np.ndarray) -> Shared:
        """The scale and zero point of each group."""

    def encode(self, x: np.ndarray, shared: Shared) -> np.ndarray:
        """The code of each number, in a byte."""

    def decode(self, codes: np.ndarray, shared: Shared) -> np.ndarray:
        """What codes stand for, in float32."""


@dataclasses.dataclass(frozen=True)
class Steps:
    """Equal steps: a number is scale (code - zero point).

    Attributes:
        symmetric: the zero point is the middle of the codes. The extremes are half a step beyond
            the outermost codes, so that no number is further from its code than half a step.
        dtype: dtype of scales in the file.
        least_zero: the lowest zero point that the layout can store.
    """

    bits: int
    symmetric: bool = True
    dtype: str = "float16"
    least_zero: int = 0

    @property
    def most(self) -> int:
        return int(2**self.bits - 1)

    def choose(self, x: np.ndarray) -> Shared:
        if self.symmetric:
            scales = self._stored(2 * np.abs(x).max(axis=-1) / np.float32(self.most))
            return Shared(scales, np.full(scales.shape, 2 ** (self.bits - 1), np.int16))
        least, most = np.minimum(x.min(axis=-1), 0), np.maximum(x.max(axis=-1), 0)
        scales = self._stored((most - least) / np.float32(self.most))
        zeros = np.rint(-least / scales).clip(self.least_zero, self.most)
        return Shared(scales, zeros.astype(np.int16))

    def _stored(self, scales: np.ndarray) -> np.ndarray:
        """Rounded to the dtype; one for numbers that are all zero, whose scale does not matter."""
        with np.errstate(over="ignore"):
            rounded = scales.astype(self.dtype).astype(np.float32)
        return np.where(rounded == 0, np.float32(1), rounded)

    def encode(self, x: np.ndarray, shared: Shared) -> np.ndarray:
        steps = np.rint(x / shared.scales[..., None]) + shared.zeros[..., None]
        return np.asarray(steps.clip(0, self.most).astype(np.uint8))

    def decode(self, codes: np.ndarray, shared: Shared) -> np.ndarray:
        steps = codes.astype(np.float32) - shared.zeros[..., None].astype(np.float32)
        return np.asarray(shared.scales[..., None] * steps)


@dataclasses.dataclass(frozen=True)
class Floats:
    """E4M3: the largest number of a group becomes 448. There are no zero points."""

    def choose(self, x: np.ndarray) -> Shared:
        largest = np.abs(x).max(axis=-1)
        scales = np.where(largest > 0, largest / LARGEST, np.float32(1)).astype(np.float32)
        return Shared(np.where(scales > 0, scales, np.float32(1)), np.zeros(scales.shape, np.int16))

    def encode(self, x: np.ndarray, shared: Shared) -> np.ndarray:
        scaled = (x / shared.scales[..., None]).clip(-LARGEST, LARGEST)
        return np.asarray(scaled.astype(ml_dtypes.float8_e4m3fn).view(np.uint8))

    def decode(self, codes: np.ndarray, shared: Shared) -> np.ndarray:
        numbers = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
        return np.asarray(shared.scales[..., None] * numbers)


class Coded(NamedTuple):
    """A matrix in codes.

    Attributes:
        codes: uint8[N, K], where the columns stand.
        scales: float32[N, G].
        zeros: int16[N, G].
        groups: int32[K], the group of each column.
    """

    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray
    groups: np.ndarray

    def numbers(self, grid: Grid) -> np.ndarray:
        """The matrix that is stored, float32[N, K]."""
        shared = Shared(self.scales[:, self.groups], self.zeros[:, self.groups])
        return grid.decode(self.codes[..., None], shared)[..., 0]


def round_to_nearest(x: np.ndarray, grid: Grid, group: int) -> Coded:
    """The matrix float32[N, K] in groups of `group` columns, which K is a multiple of."""
    num_outputs, num_inputs = x.shape
    grouped = x.reshape(num_outputs, -1, group)
    shared = grid.choose(grouped)
    codes = grid.encode(grouped, shared).reshape(x.shape)
    return Coded(codes, *shared, np.arange(num_inputs, dtype=np.int32) // group)


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
