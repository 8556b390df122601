"""SmoothQuant: weights and activations of 8 bits (W8A8), and what makes the latter bearable.

A few inputs of a layer are large for every token, and a token's scale must reach up to them: the
others keep few of its 255 steps. So input j of the activations is divided by s_j, and column j of
the weights is multiplied by it, which the product does not notice. A checkpoint has the s_j folded
into the weights and into the norm before them; what is left is int8[N, K] with float32[N, 1], as
int-quantized in `compressed_tensors`. Activations get a scale for each token, as they come: its
largest number is 127 steps, as in the paper's code. (compressed-tensors, which only simulates the
product, has 127.5.)

The method is that of Xiao et al., "SmoothQuant" (2022), with its equation 4 for s_j.
"""

import numpy as np
from jaxtyping import Float32, Int8, Int32

from reference.quantization.compressed_tensors import Integers

LARGEST = np.float32(127)
LEAST = np.float32(2.0**-118)  # from here on, neither a scale nor half a step is subnormal


def smoothing(
    activations: Float32[np.ndarray, "T K"],
    weight: Float32[np.ndarray, "N K"],
    alpha: float = 0.5,
) -> Float32[np.ndarray, "K"]:
    """The s_j: max |x_j|^alpha / max |w_j|^(1 - alpha). With 0.5 both are equally large after it.

    An input that is always zero, or has no weight, keeps its size.

    >>> x, w = np.array([[16.0, 1.0, 0.0]], np.float32), np.array([[1.0, 4.0, 2.0]], np.float32)
    >>> smoothing(x, w).tolist()
    [4.0, 0.5, 1.0]
    """
    largest_x, largest_w = np.abs(activations).max(axis=0), np.abs(weight).max(axis=0)
    either_is_zero = (largest_x == 0) | (largest_w == 0)
    largest_x, largest_w = (np.where(either_is_zero, 1, m) for m in (largest_x, largest_w))
    return np.asarray((largest_x**alpha / largest_w ** (1 - alpha)).astype(np.float32))


def quantise_rows(
    x: Float32[np.ndarray, "rows K"],
) -> tuple[Int8[np.ndarray, "rows K"], Float32[np.ndarray, "rows 1"]]:
    """Codes from -127 to 127 and a scale for each row, a token or an output; ties to even.

    A row whose numbers are all smaller than LEAST counts as zeros.

    >>> codes, scales = quantise_rows(np.array([[127.0, 0.5, 1.5], [0.0, 0.0, 0.0]], np.float32))
    >>> codes.tolist(), scales.tolist()
    ([[127, 0, 2], [0, 0, 0]], [[1.0], [1.0]])
    """
    largest = np.abs(x).max(axis=1, keepdims=True)
    scales = np.where(largest >= LEAST, largest / LARGEST, np.float32(1))
    return np.rint(x / scales).astype(np.int8), scales


def quantise(x: Float32[np.ndarray, "N K"]) -> Integers:
    """A matrix near x, as a checkpoint has it."""
    return Integers(*quantise_rows(x))


def linear(x: Float32[np.ndarray, "T K"], weight: Integers) -> Float32[np.ndarray, "T N"]:
    """The product with each token, in whole numbers up to the scales.

    >>> x, codes = np.array([[127.0, -127.0]], np.float32), np.array([[2, 1]], np.int8)
    >>> linear(x, Integers(codes, np.array([[0.5]], np.float32))).tolist()  # 127 * (2 - 1) * 0.5
    [[63.5]]
    """
    codes, scales = quantise_rows(x)
    product = _whole_product(codes, weight.weight).astype(np.float32)
    return np.asarray(product * scales * weight.weight_scale.T)


def _whole_product(
    x: Int8[np.ndarray, "T K"], weight: Int8[np.ndarray, "N K"]
) -> Int32[np.ndarray, "T N"]:
    return x.astype(np.int32) @ weight.astype(np.int32).T
