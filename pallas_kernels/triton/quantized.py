"""Numbers of a quantised cache, in the type to compute with. Scales are applied elsewhere."""

from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pallas_kernels.device import sm_version

# The oldest GPUs that convert float8_e4m3fn themselves are Ada's.
SM_WITH_FP8 = 89


def widen(stored: Array, dtype: Any) -> Array:
    """The stored numbers, exactly: each of the narrow types is part of each of the wide ones."""
    sm = sm_version()
    if stored.dtype == jnp.float8_e4m3fn and sm is not None and sm < SM_WITH_FP8:
        return widen_e4m3(stored, dtype)
    return stored.astype(dtype)


def widen_e4m3(stored: Array, dtype: Any) -> Array:
    """float8_e4m3fn to a wider float, by moving bits.

    Sign, exponent and mantissa keep their order in float16, which has one more bit of exponent:
    moved into place they mean the number divided by 2 ** 8, the difference of the biases.
    """
    bits = lax.bitcast_convert_type(stored, jnp.uint8).astype(jnp.uint16)
    magnitude = bits & 0x7F
    moved = lax.bitcast_convert_type(((bits & 0x80) << 8) | (magnitude << 7), jnp.float16)
    return jnp.where(magnitude == 0x7F, jnp.nan, moved.astype(dtype) * 256.0).astype(dtype)
