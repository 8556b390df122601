"""Rows of codes of several tensors in kinds that the reader chooses, with `kind` in each record.

Tensors that become one array, such as q, k and v, may differ: in the size of groups, in having
minimums. Then the reader chooses the kinds of the array, and each tensor is written in the first of
them that holds it. Scales are repeated for smaller groups; minimums that a tensor lacks are 0.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jax_engine.models.quantization.source import QuantizedSource
from jax_engine.weights.codes import Kind


@dataclass(frozen=True)
class InKinds:
    """The tensors of `source`, whose rows of codes are read in `kinds`."""

    source: QuantizedSource
    kinds: tuple[Kind, ...]

    @property
    def location(self) -> Path:
        return self.source.location

    def names(self) -> Collection[str]:
        return self.source.names()

    def shape(self, name: str) -> tuple[int, ...]:
        return self.source.shape(name)

    def describe(self, name: str) -> str:
        return self.source.describe(name)

    def read_into(self, name: str, out: np.ndarray) -> None:
        """Writes every field of records `row_dtype(kinds, K)`; floats as the source does.

        Raises:
            ValueError: None of the kinds holds this tensor's.
        """
        own = self.source.kind(name)
        if own is None or out.dtype.fields is None:
            self.source.read_into(name, out)
            return
        size = out.dtype["codes"].shape[0]
        number = next((n for n, kind in enumerate(self.kinds) if holds(kind, own, size)), None)
        if number is None:
            raise ValueError(f"{name}: none of {self.kinds} holds rows of {own}")
        self.source.read_into(name, out)
        kind = self.kinds[number]
        out["kind"] = number
        if kind.groups(size) > own.groups(size):
            groups = np.arange(kind.groups(size)) * kind.group // own.group
            for field in ("scales", "minimums") if own.minimums else ("scales",):
                out[field][..., : len(groups)] = out[field][..., groups]


def holds(kind: Kind, own: Kind, size: int) -> bool:
    """Whether rows of `size` columns of kind `own` can be written in another kind."""
    same = kind.code == own.code and kind.outer == own.outer == 0
    return (
        same
        and kind.activations == own.activations
        and (kind.minimums or not own.minimums)
        and (own.group % kind.group == 0 or own.groups(size) == 1)
        and kind.scale_dtype in (own.scale_dtype, "float32")
    )
