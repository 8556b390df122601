"""GPTQ: codes of 2, 3, 4 or 8 bits, a float16 scale and a zero point for each group of inputs.

A matrix of K inputs and N outputs is stored as

    qweight  int32[K b / 32, N]   the codes of an output, a stream along the inputs
    qzeros   int32[G, N b / 32]   the zero points of a group, a stream along the outputs
    scales   float16[G, N]
    g_idx    int32[K]             the group of each input

and a weight is scale (code - zero), with the scale and zero point of the input's group. With
act-order (`desc_act`) inputs were quantised in another order than they stand in, and `g_idx` is no
longer 0 0 .. 1 1 ..; the decoded matrix has them where they stand all the same.

Version 1 stores zero - 1, version 2 the zero point itself. A stored 2^b - 1 would be a zero point
of 2^b; packages disagree about it (some take 0), none writes it, and neither does `quantise`.

The layout is that of AutoGPTQ 0.7.1 (`nn_modules/qlinear/qlinear_cuda.py`), and with version 2 of
GPTQModel. The method is that of Frantar et al., "GPTQ" (2022); `quantise` here only rounds.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float16, Float32, Int16, Int32, UInt8

from reference.quantization import steps
from reference.quantization.bits import pack_stream, unpack_stream

WORD = np.dtype("<i4")


class Tensors(NamedTuple):
    """A matrix as a checkpoint has it."""

    qweight: Int32[np.ndarray, "words N"]
    qzeros: Int32[np.ndarray, "G zero_words"]
    scales: Float16[np.ndarray, "G N"]
    g_idx: Int32[np.ndarray, "K"]


def unpack(
    tensors: Tensors, bits: int, *, version: int = 1
) -> tuple[UInt8[np.ndarray, "K N"], Int16[np.ndarray, "G N"]]:
    """The codes, and the zero points."""
    codes = unpack_stream(tensors.qweight.T, bits).T
    zeros = unpack_stream(tensors.qzeros, bits).astype(np.int16)
    return codes, zeros + 1 if version == 1 else zeros


def pack(
    codes: UInt8[np.ndarray, "K N"],
    zeros: Int16[np.ndarray, "G N"],
    scales: Float16[np.ndarray, "G N"],
    g_idx: Int32[np.ndarray, "K"],
    bits: int,
    *,
    version: int = 1,
) -> Tensors:
    """The opposite of `unpack`."""
    stored = (zeros - 1 if version == 1 else zeros).astype(np.uint8)
    qweight = np.ascontiguousarray(pack_stream(codes.T, bits, WORD).T)
    return Tensors(qweight, pack_stream(stored, bits, WORD), scales, g_idx)


def decode(tensors: Tensors, bits: int, *, version: int = 1) -> Float32[np.ndarray, "N K"]:
    """The matrix.

    Eight inputs, and eight outputs that are alike but for the zero point, which only the first has:

    >>> qweight, qzeros = np.full((1, 8), 0x76543210, np.int32), np.array([[2]], np.int32)
    >>> scales, g_idx = np.full((1, 8), 0.5, np.float16), np.zeros(8, np.int32)
    >>> decode(Tensors(qweight, qzeros, scales, g_idx), 4)[0].tolist()
    [-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0]
    """
    codes, zeros = unpack(tensors, bits, version=version)
    group = tensors.g_idx
    steps_from_zero = codes.astype(np.float32) - zeros[group].astype(np.float32)
    return np.asarray(tensors.scales[group].astype(np.float32) * steps_from_zero).T


def quantise(
    x: Float32[np.ndarray, "N K"],
    bits: int,
    group_size: int,
    *,
    version: int = 1,
    symmetric: bool = False,
    order: Int32[np.ndarray, "K"] | None = None,
) -> Tensors:
    """Tensors whose matrix is near x. `order` are the inputs in act-order: the first `group_size`
    of them are group 0. Version 1 has no zero point 0, and so a step less for positive weights."""
    num_inputs = x.shape[1]
    if num_inputs % group_size:
        raise ValueError(f"{num_inputs} inputs: they must be a multiple of group_size {group_size}")
    order = np.arange(num_inputs, dtype=np.int32) if order is None else order
    grouped = x[:, order].reshape(len(x), -1, group_size)
    choose = steps.symmetric if symmetric else steps.asymmetric
    scales, zeros = choose(grouped, bits, np.float16)
    zeros = np.maximum(zeros, 1) if version == 1 else zeros
    codes = np.empty((num_inputs, len(x)), np.uint8)
    codes[order] = steps.nearest(grouped, scales, zeros, bits).reshape(x.shape).T
    g_idx = np.empty(num_inputs, np.int32)
    g_idx[order] = np.arange(num_inputs, dtype=np.int32) // group_size
    return pack(codes, zeros.T, scales.T, g_idx, bits, version=version)
