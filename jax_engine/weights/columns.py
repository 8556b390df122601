"""Some columns of a matrix, in numbers or in codes: what a device has of a row that is cut."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from jax_engine.weights.codes import Kind, columns_of, row_dtype
from jax_engine.weights.tensor_source import CodesSource, TensorSource
from jax_engine.weights.transforms import OfOne, Shape, Words, transform_of


@dataclasses.dataclass(frozen=True)
class Columns(OfOne):
    """Columns `start` to `stop - 1` of a part with `total` columns.

    Of rows of codes: the borders must be those of groups, or lie within one: see `cuts_groups`.
    """

    start: int
    stop: int
    total: int

    def tensors(self, shape: Shape, words: Words) -> Iterator[tuple[str, Shape]]:
        yield from transform_of(self.part).tensors((*shape[:-1], self.total), words)

    def read_into(self, source: TensorSource, out: np.ndarray, words: Words) -> None:
        part: Any = transform_of(self.part)
        if out.dtype.fields is None:
            values = np.empty((*out.shape[:-1], self.total), out.dtype)
            part.read_into(source, values, words)
            out[...] = values[..., self.start : self.stop]
            return
        assert isinstance(source, CodesSource)
        rows = np.empty(out.shape, row_dtype(source.kinds, self.total))
        part.read_into(source, rows, words)
        columns_of(rows, source.kinds, self.start, out)


def cuts_groups(kind: Kind, share: int) -> bool:
    """Whether shares of so many columns end between columns that have one scale or minimum.

    Shares that lie in one group as a whole do not: they have its scale.
    """
    groups = [size for size in (kind.group, kind.outer) if size]
    return any(share % size and size % share for size in groups)
