"""Grids: the numbers that the codes of a group can stand for.

A grid is chosen from the numbers of a group, along the last axis. Its scale is rounded to the dtype
in which it is stored, and codes are found with the rounded one. Of two codes that are as near, it
is the one with an even distance from the zero point.
"""

import dataclasses
from typing import NamedTuple, Protocol

import ml_dtypes
import numpy as np

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
        dtype: of scales in the file.
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
