"""A checkpoint of numbers whose matrices are rounded to codes while they are read.

`quantization="fp8"` and `"bitsandbytes"` ask for it where the checkpoint is not quantised. Each
number takes the nearest code; nothing is calibrated, so no text is needed, and no second copy of
the weights is kept.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np

from jax_engine.weights.codes import E4M3, Kind, row_dtype
from jax_engine.weights.codes import numbers as numbers_of
from jax_engine.weights.tensor_source import TensorSource, check_finite

LARGEST = np.float32(448)  # in E4M3
# NF4's numbers: as many of a normal distribution lie next to each (QLoRA, appendix E).
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
BLOCK = 64  # numbers that share a scale, as bitsandbytes has them

type Coded = tuple[np.ndarray, np.ndarray]


class Rounding(NamedTuple):
    """How matrices [..., K] are rounded.

    Attributes:
        kind: The kind of rows of K numbers; None: they stay numbers.
        encode: Codes uint8[N, K] and scales float32[N, G] of float32[N, K].
    """

    kind: Callable[[int], Kind | None]
    encode: Callable[[np.ndarray], Coded]


def _e4m3(numbers: np.ndarray) -> Coded:
    """The largest number of a row becomes 448."""
    scales = _scales(np.abs(numbers).max(axis=-1, keepdims=True) / LARGEST)
    scaled = (numbers / scales).clip(-LARGEST, LARGEST)
    return scaled.astype(ml_dtypes.float8_e4m3fn).view(np.uint8), scales


def _nf4(numbers: np.ndarray) -> Coded:
    """The largest number of a block becomes 1 or -1."""
    blocks = numbers.reshape(len(numbers), -1, BLOCK)
    scales = _scales(np.abs(blocks).max(axis=-1))
    table = np.array(NF4, np.float32)
    middles = (table[1:] + table[:-1]) / 2
    codes = np.searchsorted(middles, blocks / scales[..., None])
    return codes.reshape(numbers.shape).astype(np.uint8), scales


def _scales(found: np.ndarray) -> np.ndarray:
    """One where all numbers are zero, or so small that their scale would be."""
    return np.where(found > 0, found, np.float32(1)).astype(np.float32)


# By vLLM's names.
ROUNDINGS: Mapping[str, Rounding] = {
    "fp8": Rounding(lambda size: Kind(E4M3, size, activations=E4M3), _e4m3),
    "bitsandbytes": Rounding(lambda size: None if size % BLOCK else Kind(NF4, BLOCK), _nf4),
}


class RoundedSource:
    """A source of numbers, of which some matrices [N, K] or [E, N, K] are shown as rows of codes.

    Numbers that are read of such a matrix are those that its codes stand for, whoever asks.
    """

    def __init__(self, source: TensorSource, names: Collection[str], rounding: Rounding) -> None:
        self.location: Path = source.location
        self._source, self._rounding = source, rounding
        found = {name: rounding.kind(source.shape(name)[-1]) for name in sorted(names)}
        self._kinds = {name: kind for name, kind in found.items() if kind is not None}
        self.kinds: tuple[Kind, ...] = tuple(dict.fromkeys(self._kinds.values()))

    def names(self) -> Collection[str]:
        return self._source.names()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._source.shape(name)

    def describe(self, name: str) -> str:
        return self._source.describe(name)

    def kind(self, name: str) -> Kind | None:
        return self._kinds.get(name)

    def order(self, name: str) -> np.ndarray | None:
        return None

    def turned(self, name: str) -> bool:
        return False

    def read_into(self, name: str, out: np.ndarray) -> None:
        """Writes rows of codes into records, and the numbers of these codes into floats.

        Raises:
            WeightsError: A number is NaN or infinite, which codes would hide.
        """
        kind = self.kind(name)
        if kind is None:
            self._source.read_into(name, out)
            return
        numbers = np.empty(self._source.shape(name), np.float32)
        self._source.read_into(name, numbers)
        check_finite(self._source, name, numbers)
        coded = out.dtype.fields is not None
        matrices = numbers if numbers.ndim == 3 else (numbers,)
        places = out if numbers.ndim == 3 else (out,)
        for place, matrix in zip(places, matrices, strict=True):
            rows = place if coded else np.zeros(len(matrix), row_dtype((kind,), matrix.shape[1]))
            codes, scales = self._rounding.encode(matrix)
            rows["kind"] = self.kinds.index(kind) if coded else 0
            rows["codes"] = codes
            rows["scales"][:, : scales.shape[1]] = scales
            if not coded:
                place[...] = numbers_of(rows, (kind,))
