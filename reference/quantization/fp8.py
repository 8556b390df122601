"""FP8: a matrix in E4M3, and float32 scales for the whole, for each output, or for blocks.

    weight            E4M3[N, K], here as its bytes
    weight_scale      one number, or float32[N, 1] for each output
    weight_scale_inv  float32[ceil(N / 128), ceil(K / 128)], for `weight_block_size` [128, 128]

A weight is its E4M3 number times the scale of its block; the one called `weight_scale_inv` is
multiplied by, too. With `scale_fmt` "ue8m0" scales are powers of two; where they are stored in one
byte each, they are E8M0.

The layout with blocks is that of DeepSeek-V3 (`inference/kernel.py` in its repository), the others
are those of compressed-tensors 0.20.0 (`compressors/naive_quantized`).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, UInt8

from reference.quantization.small_floats import E4M3, E8M0, nearest
from reference.quantization.steps import spread

LARGEST = np.float32(448)


class Tensors(NamedTuple):
    """A matrix; `scale` may be bytes in E8M0. `block` rows and columns share a scale."""

    weight: UInt8[np.ndarray, "N K"]
    scale: Float32[np.ndarray, "n k"] | UInt8[np.ndarray, "n k"]
    block: tuple[int, int]


def decode(tensors: Tensors) -> Float32[np.ndarray, "N K"]:
    """The matrix.

    >>> weight = np.array([[0x38, 0xC0, 0x01]], np.uint8)  # 1, -2, 2^-9
    >>> decode(Tensors(weight, np.array([[0.5, 4.0]], np.float32), (128, 2))).tolist()
    [[0.5, -1.0, 0.0078125]]
    """
    scale = E8M0[tensors.scale] if tensors.scale.dtype == np.uint8 else tensors.scale
    num_outputs, num_inputs = tensors.weight.shape
    return np.asarray(
        E4M3[tensors.weight] * spread(scale, (num_outputs, num_inputs), tensors.block)
    )


def quantise(x: Float32[np.ndarray, "N K"], block: tuple[int, int]) -> Tensors:
    """A matrix near x. The largest number of each block becomes 448, the largest in E4M3.

    `block` is (N, K) for one scale, (1, K) for one each output, or (128, 128).
    """
    num_outputs, num_inputs = x.shape
    starts = np.arange(0, num_outputs, block[0]), np.arange(0, num_inputs, block[1])
    by_rows = np.maximum.reduceat(np.abs(x), starts[0], axis=0)
    largest = np.maximum.reduceat(by_rows, starts[1], axis=1)
    scale = np.where(largest > 0, largest / LARGEST, np.float32(1))
    weight = nearest(x / spread(scale, (num_outputs, num_inputs), block), E4M3)
    return Tensors(weight, scale, block)
