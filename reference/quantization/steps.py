"""Numbers in equal steps: scale (code - zero point), for codes of b bits from 0 to 2^b - 1.

Numbers that share a scale lie along the last axis. A scale is chosen from their extremes, then
rounded to the dtype in which it is stored; codes are found with the rounded one.
"""

import numpy as np
from jaxtyping import Float, Float32, Int16, UInt8


def symmetric(
    x: Float32[np.ndarray, "*groups n"], bits: int, dtype: type[np.floating] = np.float32
) -> tuple[Float[np.ndarray, "*groups"], Int16[np.ndarray, "*groups"]]:
    """Scales for codes whose zero point is in their middle, 2^(b-1); and these zero points.

    The extremes are half a step beyond the middles of the outermost steps, so that no number is
    further from its step than half of one.

    >>> scales, zeros = symmetric(np.array([[-7.5, 3.0]], np.float32), 4)
    >>> scales.tolist(), zeros.tolist()
    ([1.0], [8])
    """
    extremes = np.abs(x).max(axis=-1)
    scales = _stored(2 * extremes / np.float32(2**bits - 1), dtype)
    return scales, np.full(scales.shape, 2 ** (bits - 1), np.int16)


def asymmetric(
    x: Float32[np.ndarray, "*groups n"], bits: int, dtype: type[np.floating] = np.float32
) -> tuple[Float[np.ndarray, "*groups"], Int16[np.ndarray, "*groups"]]:
    """Scales and zero points so that the codes reach from the smallest to the largest number.

    >>> scales, zeros = asymmetric(np.array([[-2.0, 13.0]], np.float32), 4)
    >>> scales.tolist(), zeros.tolist()
    ([1.0], [2])
    """
    least, most = np.minimum(x.min(axis=-1), 0), np.maximum(x.max(axis=-1), 0)
    scales = _stored((most - least) / np.float32(2**bits - 1), dtype)
    zeros = np.rint(-least / scales.astype(np.float32)).clip(0, 2**bits - 1)
    return scales, zeros.astype(np.int16)


def nearest(
    x: Float32[np.ndarray, "*groups n"],
    scales: Float[np.ndarray, "*groups"],
    zeros: Int16[np.ndarray, "*groups"],
    bits: int,
) -> UInt8[np.ndarray, "*groups n"]:
    """The code of each number: of the nearest step, of two as near the one with an even distance
    from the zero point.

    >>> x, one, zero = np.array([0.5, 1.5, 99.0], np.float32), np.array(1.0), np.array(2, np.int16)
    >>> nearest(x, one, zero, 4).tolist()
    [2, 4, 15]
    """
    codes = np.rint(x / scales.astype(np.float32)[..., None]) + zeros[..., None]
    return np.asarray(codes.clip(0, 2**bits - 1).astype(np.uint8))


def spread(
    shared: Float32[np.ndarray, "n k"], shape: tuple[int, int], block: tuple[int, int]
) -> Float32[np.ndarray, "N K"]:
    """One number for each of a matrix, from those that are shared by blocks of rows and columns.
    The last blocks may be cut off.

    >>> spread(np.array([[1.0, 2.0]], np.float32), (2, 3), (128, 2)).tolist()
    [[1.0, 1.0, 2.0], [1.0, 1.0, 2.0]]
    """
    rows = np.repeat(shared, block[0], axis=0)[: shape[0]]
    return np.repeat(rows, block[1], axis=1)[:, : shape[1]]


def _stored(
    scales: Float32[np.ndarray, "*groups"], dtype: type[np.floating]
) -> Float[np.ndarray, "*groups"]:
    """Rounded to the dtype; one for numbers that are all zero, whose scale does not matter."""
    rounded = np.asarray(scales, dtype)
    return np.where(rounded == 0, np.ones_like(rounded), rounded)
