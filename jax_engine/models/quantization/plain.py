"""A matrix that is stored as codes, but of which there are no rows of codes: numbers only."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from jax_engine.weights.codes import Kind


@dataclass(frozen=True)
class Plain:
    """One matrix; `numbers` returns it in float32, and may raise WeightsError."""

    shape: tuple[int, int]
    numbers: Callable[[], np.ndarray]
    kind: Kind | None = None
    order: np.ndarray | None = None

    def read_rows(self, out: np.ndarray) -> None:
        raise TypeError("a matrix of kind None has no rows of codes")

    def read_numbers(self, out: np.ndarray) -> None:
        """Writes the numbers [N, K]."""
        with np.errstate(all="ignore"):
            out[...] = self.numbers()
