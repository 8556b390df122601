"""Norms: what keeps the numbers of a layer near one.

A norm looks at one token at a time. The root-mean-square norm divides a token's numbers by their
root mean square; the layer norm first subtracts their mean, so that it divides by their standard
deviation. Both then weigh each number, and may add a bias.
"""

import numpy as np
from jaxtyping import Float


def normalise(
    x: Float[np.ndarray, "*stack E"],
    weight: Float[np.ndarray, "*#stack E"],
    bias: Float[np.ndarray, "*#stack E"] | None = None,
    *,
    kind: str,
    eps: float,
) -> Float[np.ndarray, "*stack E"]:
    """The norm over the last axis, in float64; `kind` is "rms" or "layer".

    >>> x, one = np.array([[3.0, 4.0]]), np.ones(2)
    >>> normalise(x, one, kind="rms", eps=0.0).round(4).tolist()  # the root mean square is 3.5355
    [[0.8485, 1.1314]]
    >>> normalise(x, one, kind="layer", eps=0.0).tolist()
    [[-1.0, 1.0]]
    """
    exact = x.astype(np.float64)
    if kind == "layer":
        exact = exact - np.mean(exact, axis=-1, keepdims=True)
    mean_square = np.mean(exact * exact, axis=-1, keepdims=True)
    normed = exact / np.sqrt(mean_square + eps) * weight
    return np.asarray(normed if bias is None else normed + bias)
