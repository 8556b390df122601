"""What is known of a matrix's inputs: sums over the calibration text, however long it is."""

from typing import NamedTuple

import numpy as np


class Inputs(NamedTuple):
    """Sums over the rows x [T, K] that a matrix of K inputs has seen.

    Attributes:
        products: float64[K, K], the sum of x x^T: GPTQ's Hessian.
        sizes: float64[K], the sum of |x|.
        largest: float32[K], the largest |x|.
        rows: T.
    """

    products: np.ndarray
    sizes: np.ndarray
    largest: np.ndarray
    rows: int

    def plus(self, other: "Inputs") -> "Inputs":
        """Those of both."""
        largest = np.maximum(self.largest, other.largest)
        products, sizes = self.products + other.products, self.sizes + other.sizes
        return Inputs(products, sizes, largest, self.rows + other.rows)

    def divided_by(self, scales: np.ndarray) -> "Inputs":
        """Those of x / scales."""
        products = self.products / np.outer(scales, scales)
        return Inputs(products, self.sizes / scales, self.largest / scales, self.rows)

    def error(self, change: np.ndarray) -> float:
        """The sum of the squares of x @ change.T over all rows of x, summed in float32."""
        narrow = change.astype(np.float32)
        return float(((narrow @ self.products.astype(np.float32)) * narrow).sum(dtype=np.float64))
