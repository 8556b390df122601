"""The product of a matrix with each token of a step."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float


def linear(
    weights: Mapping[str, np.ndarray], name: str, x: Float[np.ndarray, "R in"]
) -> Float[np.ndarray, "R out"]:
    """W x + b, one token after another (see `reference.transformer`), b where there is one.

    >>> double = {"double.weight": np.array([[2.0]]), "double.bias": np.array([0.5])}
    >>> linear(double, "double", np.array([[3.0], [4.0]])).tolist()
    [[6.5], [8.5]]
    """
    weight, bias = weights[f"{name}.weight"], weights.get(f"{name}.bias")
    out = np.empty((len(x), len(weight)), dtype=x.dtype)
    for row, token in enumerate(x):
        out[row] = weight @ token
    return out if bias is None else out + bias
