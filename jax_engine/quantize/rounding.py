"""Round to nearest: a matrix in codes, each number for itself."""

from typing import NamedTuple

import numpy as np

from jax_engine.quantize.grids import Grid, Shared


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
