"""AWQ: codes of 4 bits in an order of their own, scales and zero points for groups of inputs.

A matrix of K inputs and N outputs is stored as

    qweight  int32[K, N / 8]      eight outputs of one input in a word
    qzeros   int32[G, N / 8]      the zero points, packed alike
    scales   float16[G, N]

and a weight is scale (code - zero). Nibble i of word c, from the lowest, is output 8 c + ORDER[i]:
the even outputs lie below the odd ones, so that a GPU converts two neighbours at a time.

The layout is that of AutoAWQ's version "gemm" (`awq/modules/linear/gemm.py`). The method, which
scales inputs by what is active in them before it rounds, is that of Lin et al., "AWQ" (2023);
`quantise` here only rounds.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float16, Float32, Int32, UInt8

from reference.quantization import steps
from reference.quantization.bits import pack_stream, unpack_stream

BITS = 4
ORDER = np.array([0, 2, 4, 6, 1, 3, 5, 7])
WORD = np.dtype("<i4")


class Tensors(NamedTuple):
    """A matrix as a checkpoint has it."""

    qweight: Int32[np.ndarray, "K words"]
    qzeros: Int32[np.ndarray, "G words"]
    scales: Float16[np.ndarray, "G N"]


def unpack(words: Int32[np.ndarray, "rows words"]) -> UInt8[np.ndarray, "rows N"]:
    """The codes of each output.

    >>> unpack(np.array([[0x76543210]], np.int32))[0].tolist()
    [0, 4, 1, 5, 2, 6, 3, 7]
    """
    nibbles = unpack_stream(words, BITS).reshape(*words.shape, 8)
    codes = np.empty_like(nibbles)
    codes[..., ORDER] = nibbles
    return codes.reshape(len(words), -1)


def pack(codes: UInt8[np.ndarray, "rows N"]) -> Int32[np.ndarray, "rows words"]:
    """The opposite of `unpack`."""
    nibbles = codes.reshape(len(codes), -1, 8)[..., ORDER]
    return pack_stream(nibbles.reshape(len(codes), -1), BITS, WORD)


def decode(tensors: Tensors) -> Float32[np.ndarray, "N K"]:
    """The matrix. Its inputs are shared out among the groups in equal parts.

    >>> words, scales = np.array([[0x76543210]], np.int32), np.full((1, 8), 0.5, np.float16)
    >>> decode(Tensors(words, np.array([[0x11111111]], np.int32), scales))[:, 0].tolist()
    [-0.5, 1.5, 0.0, 2.0, 0.5, 2.5, 1.0, 3.0]
    """
    group = np.arange(len(tensors.qweight)) // (len(tensors.qweight) // len(tensors.scales))
    zeros = unpack(tensors.qzeros).astype(np.float32)
    steps_from_zero = unpack(tensors.qweight).astype(np.float32) - zeros[group]
    return (tensors.scales.astype(np.float32)[group] * steps_from_zero).T


def quantise(x: Float32[np.ndarray, "N K"], group_size: int) -> Tensors:
    """Tensors whose matrix is near x."""
    num_outputs, num_inputs = x.shape
    if num_inputs % group_size:
        raise ValueError(f"{num_inputs} inputs: they must be a multiple of group_size {group_size}")
    if num_outputs % 8:
        raise ValueError(f"{num_outputs} outputs: they must be a multiple of 8")
    grouped = x.reshape(num_outputs, -1, group_size)
    scales, zeros = steps.asymmetric(grouped, BITS, np.float16)
    codes = steps.nearest(grouped, scales, zeros, BITS).reshape(x.shape)
    return Tensors(pack(codes.T), pack(zeros.T.astype(np.uint8)), scales.T)
