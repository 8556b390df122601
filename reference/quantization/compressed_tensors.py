"""compressed-tensors: integer codes, packed or not, as LLM Compressor writes them.

pack-quantized, for a matrix of K inputs and N outputs:

    weight_packed      int32[N, words]   codes + 2^(b-1), so that they are not negative
    weight_scale       float[N, G]
    weight_zero_point  int32[words, G]   if it is asymmetric: packed alike, along the outputs
    weight_g_idx       int32[K]          if inputs are grouped by activation order
    weight_shape       int64[2]          N and K

int-quantized holds int8[N, K] and int8[N, G] in their place. A weight is scale (code - zero).

How codes lie in words has changed. Version 0.20 packs a stream; earlier ones gave each word
floor(32 / b) codes, and left the bits above unused. Both are alike for 2, 4 and 8 bits. For others
the number of words tells which it is: a stream has fewer, unless a row has very few codes; the
stream is taken then.

The layouts are those of `compressors/pack_quantized` and `compressors/naive_quantized` in the
package compressed-tensors 0.20.0, the earlier one of 0.9.4. Scales in bfloat16 are float32 here.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int8, Int32

from reference.quantization import steps
from reference.quantization.bits import pack_stream, unpack_stream

WORD = np.dtype("<i4")


class Packed(NamedTuple):
    """A matrix of pack-quantized."""

    weight_packed: Int32[np.ndarray, "N words"]
    weight_scale: Float32[np.ndarray, "N G"]
    weight_shape: tuple[int, int]
    weight_zero_point: Int32[np.ndarray, "zero_words G"] | None = None
    weight_g_idx: Int32[np.ndarray, "K"] | None = None


class Integers(NamedTuple):
    """A matrix of int-quantized."""

    weight: Int8[np.ndarray, "N K"]
    weight_scale: Float32[np.ndarray, "N G"]
    weight_zero_point: Int8[np.ndarray, "N G"] | None = None


def unpack(
    words: Int32[np.ndarray, "rows words"], bits: int, count: int
) -> Int8[np.ndarray, "rows count"]:
    """The first `count` codes of each row.

    >>> unpack(np.array([[0x76543210]], np.int32), 4, 3).tolist()
    [[-8, -7, -6]]
    """
    if words.shape[1] == -(-count * bits // 32):
        codes = unpack_stream(words, bits)
    else:
        codes = unpack_stream(words[..., None], bits).reshape(len(words), -1)
    signed = codes[:, :count].astype(np.int16) - 2 ** (bits - 1)
    return np.asarray(signed.astype(np.int8))


def pack(
    codes: Int8[np.ndarray, "rows count"], bits: int, *, whole_words: bool = False
) -> Int32[np.ndarray, "rows words"]:
    """The opposite of `unpack`: a stream, or words of whole codes as earlier versions wrote."""
    stored = (codes.astype(np.int16) + 2 ** (bits - 1)).astype(np.uint8)
    if not whole_words:
        return pack_stream(stored, bits, WORD)
    in_word = 32 // bits
    padded = np.pad(stored, ((0, 0), (0, -stored.shape[1] % in_word)))
    return pack_stream(padded.reshape(len(codes), -1, in_word), bits, WORD)[..., 0]


def decode_packed(tensors: Packed, bits: int) -> Float32[np.ndarray, "N K"]:
    """The matrix of pack-quantized.

    >>> words, scale = np.array([[0x76543210]], np.int32), np.array([[0.5]], np.float32)
    >>> decode_packed(Packed(words, scale, (1, 8)), 4).tolist()
    [[-4.0, -3.5, -3.0, -2.5, -2.0, -1.5, -1.0, -0.5]]
    """
    num_outputs, num_inputs = tensors.weight_shape
    codes, zeros = unpack(tensors.weight_packed, bits, num_inputs), tensors.weight_zero_point
    unpacked = None if zeros is None else unpack(zeros.T, bits, num_outputs).T
    return _decode(codes, tensors.weight_scale, unpacked, tensors.weight_g_idx)


def decode_integers(tensors: Integers) -> Float32[np.ndarray, "N K"]:
    """The matrix of int-quantized.

    >>> codes, scale = np.array([[-2, 3]], np.int8), np.array([[0.5]], np.float32)
    >>> decode_integers(Integers(codes, scale)).tolist()
    [[-1.0, 1.5]]
    """
    return _decode(tensors.weight, tensors.weight_scale, tensors.weight_zero_point, None)


def quantise_packed(
    x: Float32[np.ndarray, "N K"], bits: int, group_size: int, *, symmetric: bool = True
) -> Packed:
    """Tensors of pack-quantized whose matrix is near x."""
    codes, scales, zeros = _quantise(x, bits, group_size, symmetric=symmetric)
    packed_zeros = None if zeros is None else np.ascontiguousarray(pack(zeros.T, bits).T)
    return Packed(pack(codes, bits), scales, (x.shape[0], x.shape[1]), packed_zeros)


def quantise_integers(
    x: Float32[np.ndarray, "N K"], group_size: int, *, symmetric: bool = True
) -> Integers:
    """Tensors of int-quantized, with 8 bits, whose matrix is near x."""
    return Integers(*_quantise(x, 8, group_size, symmetric=symmetric))


def _decode(
    codes: Int8[np.ndarray, "N K"],
    scales: Float32[np.ndarray, "N G"],
    zeros: Int8[np.ndarray, "N G"] | None,
    g_idx: Int32[np.ndarray, "K"] | None,
) -> Float32[np.ndarray, "N K"]:
    num_inputs, num_groups = codes.shape[1], scales.shape[1]
    group = np.arange(num_inputs) // (num_inputs // num_groups) if g_idx is None else g_idx
    steps_from_zero = codes.astype(np.float32)
    if zeros is not None:
        steps_from_zero = steps_from_zero - zeros.astype(np.float32)[:, group]
    return np.asarray(scales[:, group] * steps_from_zero)


def _quantise(
    x: Float32[np.ndarray, "N K"], bits: int, group_size: int, *, symmetric: bool
) -> tuple[Int8[np.ndarray, "N K"], Float32[np.ndarray, "N G"], Int8[np.ndarray, "N G"] | None]:
    """Codes, scales and zero points, the middle taken off both."""
    if x.shape[1] % group_size:
        raise ValueError(f"{x.shape[1]} inputs: they must be a multiple of group_size {group_size}")
    grouped = x.reshape(len(x), -1, group_size)
    scales, zeros = (steps.symmetric if symmetric else steps.asymmetric)(grouped, bits)
    codes = steps.nearest(grouped, scales, zeros, bits).reshape(x.shape)
    middle = 2 ** (bits - 1)
    signed = (codes.astype(np.int16) - middle).astype(np.int8)
    return signed, scales, None if symmetric else (zeros - middle).astype(np.int8)
