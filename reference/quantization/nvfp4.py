"""NVFP4: numbers in E2M1, a scale in E4M3 for 16 of them, and one for the whole matrix.

    weight_packed        uint8[N, K / 2]   two codes a byte, the first one in the low nibble
    weight_scale         E4M3[N, K / 16]   here as its bytes
    weight_global_scale  float32           a divisor

A weight is its E2M1 number times (weight_scale / weight_global_scale). ModelOpt writes the inverse
of the divisor, as `weight_scale_2`, and calls the codes `weight`.

The layout is that of compressed-tensors 0.20.0 (`compressors/nvfp4`). NVIDIA describes the format
in "Introducing NVFP4 for Efficient and Accurate Low-Precision Inference" (2025).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, UInt8

from reference.quantization.bits import pack_stream, unpack_stream
from reference.quantization.small_floats import E2M1, E4M3, nearest

BLOCK = 16
BYTE = np.dtype(np.uint8)
LARGEST_E2M1, LARGEST_E4M3 = np.float32(6), np.float32(448)


class Tensors(NamedTuple):
    """A matrix as a checkpoint has it."""

    weight_packed: UInt8[np.ndarray, "N bytes"]
    weight_scale: UInt8[np.ndarray, "N G"]
    weight_global_scale: np.float32


def decode(tensors: Tensors) -> Float32[np.ndarray, "N K"]:
    """The matrix.

    >>> packed, scale = np.array([[0x21] + [0xF7] * 7], np.uint8), np.array([[0x40]], np.uint8)
    >>> decode(Tensors(packed, scale, np.float32(4.0)))[0, :4].tolist()  # scale 2 / 4
    [0.25, 0.5, 3.0, -3.0]
    """
    scales = E4M3[tensors.weight_scale] / tensors.weight_global_scale
    numbers = E2M1[unpack_stream(tensors.weight_packed, 4)]
    grouped = numbers.reshape(*scales.shape, BLOCK) * scales[..., None]
    return np.asarray(grouped.reshape(numbers.shape))


def quantise(x: Float32[np.ndarray, "N K"]) -> Tensors:
    """A matrix near x: the largest number of all has the largest code and the largest scale.

    Raises ValueError if a row is no multiple of 16.
    """
    if x.shape[-1] % BLOCK:
        raise ValueError(f"rows of {x.shape[-1]} numbers: they must be a multiple of {BLOCK}")
    grouped = x.reshape(len(x), -1, BLOCK)
    largest = np.abs(grouped).max(axis=-1)
    most = largest.max()
    global_scale = LARGEST_E4M3 * LARGEST_E2M1 / most if most > 0 else np.float32(1)
    scales = nearest(largest * global_scale / LARGEST_E2M1, E4M3)
    actual = (E4M3[scales] / global_scale)[..., None]
    steps = np.divide(grouped, actual, out=np.zeros_like(grouped), where=actual > 0)
    packed = pack_stream(nearest(steps, E2M1).reshape(x.shape), 4, BYTE)
    return Tensors(packed, scales, np.float32(global_scale))
