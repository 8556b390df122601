"""What calibration keeps of the inputs of a matrix."""

from typing import Any, NamedTuple

import numpy as np


class Inputs(NamedTuple):
    """What is known of the rows x of K numbers that a matrix has multiplied.

    Attributes:
        products: [K, K], the sum of x x^T: the Hessian.
        sizes: [K], the sum of |x|.
        largest: [K], the largest |x|.
        rows: [R, K], some of the rows.
    """

    products: Any
    sizes: Any
    largest: Any
    rows: Any

    def joined(self, more: "Inputs") -> "Inputs":
        """These rows and others, sums in float64."""
        return Inputs(
            self.products + np.asarray(more.products, np.float64),
            self.sizes + np.asarray(more.sizes, np.float64),
            np.maximum(self.largest, more.largest),
            np.concatenate([self.rows, more.rows]),
        )

    def divided(self, scales: np.ndarray) -> "Inputs":
        """Those of x / scales."""
        return Inputs(
            self.products / np.outer(scales, scales),
            self.sizes / scales,
            self.largest / scales,
            self.rows / scales,
        )

    def errors(self, change: np.ndarray) -> np.ndarray:
        """The sum of squares of x @ change.T over all x, for each row of the change [N, K]."""
        narrow = change.astype(np.float32)
        products = self.products.astype(np.float32)
        return np.asarray(((narrow @ products) * narrow).sum(axis=-1, dtype=np.float64))


def nothing(num_inputs: int) -> Inputs:
    """Before the first row."""
    zeros = np.zeros(num_inputs)
    rows = np.zeros((0, num_inputs), np.float32)
    return Inputs(np.zeros((num_inputs, num_inputs)), zeros, zeros.astype(np.float32), rows)
