"""exp and tanh of vectors in float32, computed inline."""

from typing import Any

from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.vectors import (
    add,
    div,
    larger,
    madd,
    mul,
    shifted_to_exponent,
    spread,
    sub,
    where_less,
)

# Below this `exp` returns 0, since the result would be subnormal.
LEAST = -87.3
# 1.5 * 2**23 + 127: adding it leaves a number's nearest integer, and 127, in the lowest bits.
ROUNDER = 12582912.0 + 127.0
LOG2_E = 1.4426950408889634
# ln 2 in two parts; the first has few bits, so that its multiples are exact.
LN_2_HIGH, LN_2_LOW = 0.693359375, -2.12194440e-4
# Cephes' polynomial for (exp(r) - 1 - r) / r**2, |r| <= ln(2) / 2.
EXP_POWERS = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)


@inner
def exp(x: Any) -> Any:
    """exp(x) for x up to a little above 0, with relative error 1e-7; 0 below LEAST; NaN for NaN."""
    least = spread(LEAST)
    clamped = where_less(x, least, least, x)
    shifted = madd(clamped, spread(LOG2_E), spread(ROUNDER))
    power = sub(shifted, spread(ROUNDER))
    rest = madd(power, spread(-LN_2_HIGH), clamped)
    rest = madd(power, spread(-LN_2_LOW), rest)
    value = spread(EXP_POWERS[0])
    value = madd(value, rest, spread(EXP_POWERS[1]))
    value = madd(value, rest, spread(EXP_POWERS[2]))
    value = madd(value, rest, spread(EXP_POWERS[3]))
    value = madd(value, rest, spread(EXP_POWERS[4]))
    value = madd(value, rest, spread(EXP_POWERS[5]))
    value = madd(mul(value, rest), rest, add(rest, spread(1.0)))
    return where_less(x, least, spread(0.0), mul(value, shifted_to_exponent(shifted)))


@inner
def tanh(x: Any) -> Any:
    """tanh(x) with a relative error of about 1e-7, as a quotient of polynomials (from Eigen)."""
    bound = spread(7.9053111)
    x = where_less(bound, x, bound, larger(sub(spread(0.0), bound), x))
    square = mul(x, x)
    above = spread(-2.76076847742355e-16)
    above = madd(above, square, spread(2.00018790482477e-13))
    above = madd(above, square, spread(-8.60467152213735e-11))
    above = madd(above, square, spread(5.12229709037114e-08))
    above = madd(above, square, spread(1.48572235717979e-05))
    above = madd(above, square, spread(6.37261928875436e-04))
    above = madd(above, square, spread(4.89352455891786e-03))
    below = spread(1.19825839466702e-06)
    below = madd(below, square, spread(1.18534705686654e-04))
    below = madd(below, square, spread(2.26843463243900e-03))
    below = madd(below, square, spread(4.89352518554385e-03))
    return div(mul(x, above), below)
