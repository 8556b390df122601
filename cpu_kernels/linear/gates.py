"""The gates of gated networks: activation(gate) * up, in float32.

Most activations are their argument times a share between 0 and 1: a sigmoid, or the normal
distribution.
"""

from typing import Any

from cpu_kernels.compiling.jit import inner
from cpu_kernels.linear.chunks import Chunk, Share
from cpu_kernels.simd.functions import exp
from cpu_kernels.simd.micro_kernel import COLUMNS
from cpu_kernels.simd.narrow import store_as
from cpu_kernels.simd.vectors import (
    LANES,
    add,
    div,
    larger,
    load,
    load_some,
    madd,
    mul,
    spread,
    sub,
    where_less,
)
from cpu_kernels.simd.widen import item_bytes

PARTS = 2  # gate and up
STEP = 4 * PARTS * COLUMNS  # bytes of a row's products with one panel of gate and one of up
# The kernel gets an activation's index here.
ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu", "relu2", "clipped_swiglu")
SILU, GELU, GELU_TANH, RELU, RELU2 = 0, 1, 2, 3, 4
# gpt-oss bounds the numbers before its gate, and has another slope than silu.
LIMIT, SLOPE = 7.0, 1.702
# 2 sqrt(2 / pi), and the same times 0.044715: a sigmoid is (1 + tanh of half its argument) / 2.
LINEAR, CUBIC = 1.5957691216057308, 0.07135481282052674
# Abramowitz and Stegun, 7.1.26: half of the complement of the error function, with t = 1 / (1 + p
# |x|). The absolute error is below 8e-8. p is divided by sqrt(2), as the argument is.
P = 0.3275911 / 2**0.5
NORMAL_POWERS = (
    1.061405429 / 2,
    -1.453152027 / 2,
    1.421413741 / 2,
    -0.284496736 / 2,
    0.254829592 / 2,
)


@inner
def _magnitude(x: Any) -> Any:
    return larger(x, sub(spread(0.0), x))


@inner
def _sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), without exp of a positive number."""
    zero, one = spread(0.0), spread(1.0)
    small = exp(sub(zero, _magnitude(x)))
    return div(where_less(x, zero, small, one), add(one, small))


@inner
def _normal(x: Any) -> Any:
    """The normal distribution: how much of it is below x."""
    one, size = spread(1.0), _magnitude(x)
    t = div(one, madd(size, spread(P), one))
    value = spread(NORMAL_POWERS[0])
    value = madd(value, t, spread(NORMAL_POWERS[1]))
    value = madd(value, t, spread(NORMAL_POWERS[2]))
    value = madd(value, t, spread(NORMAL_POWERS[3]))
    value = madd(value, t, spread(NORMAL_POWERS[4]))
    tail = mul(mul(value, t), exp(mul(mul(size, size), spread(-0.5))))
    return where_less(x, spread(0.0), tail, sub(one, tail))


@inner
def gated(activation: int, gate: Any, up: Any) -> Any:
    """activation(gate) * up, for an index into `ACTIVATIONS`."""
    if activation == SILU:  # first: the most common one pays for no other comparison
        return mul(mul(gate, _sigmoid(gate)), up)
    zero = spread(0.0)
    if activation == GELU:
        return mul(mul(gate, _normal(gate)), up)
    if activation == GELU_TANH:
        inside = madd(mul(mul(gate, gate), spread(CUBIC)), gate, mul(gate, spread(LINEAR)))
        return mul(mul(gate, _sigmoid(inside)), up)
    if activation == RELU:
        return mul(larger(zero, gate), up)
    if activation == RELU2:
        positive = larger(zero, gate)
        return mul(mul(positive, positive), up)
    gate = where_less(spread(LIMIT), gate, spread(LIMIT), gate)
    up = where_less(spread(LIMIT), up, spread(LIMIT), larger(spread(-LIMIT), up))
    share = _sigmoid(mul(gate, spread(SLOPE)))
    return mul(mul(gate, share), add(up, spread(1.0)))


@inner
def _bias_of(call: Any, share: Share) -> int:
    """Address of the biases of a share's first gate, or 0 if there are none."""
    if call.bias.shape[0] == 0:
        return 0
    first = PARTS * call.out.shape[1] * share.group + COLUMNS * share.panel
    return call.bias.address + 4 * first


@inner
def gate_pair(call: Any, chunk: Chunk, share: Share, pair: int, products: int) -> None:
    """Gates the products of one panel of gate and one of up, and stores the results.

    Args:
        call: has the result `out`, and the operands `bias` and `activation`.
        chunk, share: the chunk and the share of the panels that the pair belongs to.
        pair: number of the pair within them.
        products: address of rows of STEP bytes: the products with gate, then those with up.
    """
    kind, width, activation = call.out.dtype, call.out.shape[1], call.activation.int32[0]
    item, first, bias = item_bytes(kind), COLUMNS * pair, _bias_of(call, share)
    for row in range(chunk.tokens):
        for at in range(0, min(COLUMNS, chunk.columns - first), LANES):
            count = chunk.columns - first - at
            here, added = products + STEP * row + 4 * at, bias + 4 * (first + at)
            gate, up = load(here), load(here + 4 * COLUMNS)
            if bias != 0:
                gate = add(gate, load_some(added, count))
                up = add(up, load_some(added + 4 * width, count))
            place = chunk.out + row * chunk.out_step + item * (first + at)
            store_as(kind, place, gated(activation, gate, up), count)
