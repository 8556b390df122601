"""Floats of 4 and 8 bits: every number there is, in a table, by its code.

The name says how many bits the exponent and the mantissa have; the sign is above both.

    E2M1   4 bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6, and the same negative
    E4M3   8 bits: up to 448, as in "FP8 Formats for Deep Learning" (Micikevicius et al., 2022);
           no infinities, and NaN where all bits but the sign are set
    E8M0   8 bits: the powers of two from 2^-127 to 2^127; no sign, no zero; 255 is NaN

E2M1 and E8M0 are those of the OCP Microscaling Formats specification 1.0. The tests compare all
three with the package `ml_dtypes`.
"""

import numpy as np
from jaxtyping import Float32, UInt8


def _signed_floats(exponent_bits: int, mantissa_bits: int) -> Float32[np.ndarray, "codes"]:
    """The numbers of all codes. An exponent of 0 is that of 1, without the leading one."""
    codes = np.arange(2 ** (exponent_bits + mantissa_bits))
    mantissa, exponent = codes % 2**mantissa_bits, codes // 2**mantissa_bits
    whole = mantissa + np.where(exponent > 0, 2**mantissa_bits, 0)
    bias = 2 ** (exponent_bits - 1) - 1 + mantissa_bits
    positive = np.ldexp(whole.astype(np.float32), np.maximum(exponent, 1) - bias)
    return np.concatenate([positive, -positive])


E2M1 = _signed_floats(2, 1)
E4M3 = _signed_floats(4, 3)
E4M3[[127, 255]] = np.nan
E8M0 = np.append(np.ldexp(np.float32(1), np.arange(-127, 128)), np.float32(np.nan))


def nearest(
    x: Float32[np.ndarray, "*shape"], table: Float32[np.ndarray, "codes"]
) -> UInt8[np.ndarray, "*shape"]:
    """The code of the nearest number in E2M1 or E4M3; of two as near, the even code.

    What lies beyond the largest number becomes that one. Codes of positive numbers are in order.

    >>> E2M1[nearest(np.array([0.25, 2.5, -2.6, 99.0], np.float32), E2M1)].tolist()
    [0.0, 2.0, -3.0, 6.0]
    """
    positive = table[: len(table) // 2].astype(np.float64)
    positive = positive[np.isfinite(positive)]
    size = np.abs(x).astype(np.float64)
    below = np.searchsorted(positive, size, side="right") - 1
    above = np.minimum(below + 1, len(positive) - 1)
    to_below, to_above = size - positive[below], positive[above] - size
    up = (to_above < to_below) | ((to_above == to_below) & (above % 2 == 0))
    sign = np.signbit(x) * (len(table) // 2)
    return np.asarray((np.where(up, above, below) + sign).astype(np.uint8))
