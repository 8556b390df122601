"""Converts numbers of a quantised cache to the compute dtype. Scales are applied elsewhere."""

from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pallas_kernels.device import sm_version

# Ada, the oldest GPUs with instructions that convert float8_e4m3fn.
SM_WITH_FP8 = 89


def widen(stored: Array, dtype: Any) -> Array:
    """Converts stored numbers exactly: every number of a narrow type exists in each wide type."""
    sm = sm_version()
    if stored.dtype == jnp.float8_e4m3fn and sm is not None and sm < SM_WITH_FP8:
        return widen_e4m3(stored, dtype)
    return stored.astype(dtype)


def widen_e4m3(stored: Array, dtype: Any) -> Array:
    """Converts float8_e4m3fn to a wider float by moving bits.

    float16 has the same order of sign, exponent and mantissa, with one more bit of exponent. The
    moved bits are the number divided by 2 ** 8, since the exponents' biases differ by 8.
    """
    bits = lax.bitcast_convert_type(stored, jnp.uint8).astype(jnp.uint16)
    magnitude = bits & 0x7F
    moved = lax.bitcast_convert_type(((bits & 0x80) << 8) | (magnitude << 7), jnp.float16)
    return jnp.where(magnitude == 0x7F, jnp.nan, moved.astype(dtype) * 256.0).astype(dtype)
