"""Matrix products. Where quantised weights plug in."""

import functools

import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Float, Int

from pallas_kernels.device import target_device

CONTRACT_LAST = (((1,), (1,)), ((), ()))  # x [T, in] with weight [out, in]
CONTRACT_LAST_OF_BATCH = (((2,), (2,)), ((0,), (0,)))
# On a CPU a product with so few rows is taken in so many parts of the weight (docs/cpu.md).
FEW_ROWS = range(2, 33)
PARTS = 8


class LayerParam(nnx.Param):  # type: ignore[misc]
    """The weight of one layer, kept as an array of its own rather than in a stack of layers."""


class Linear(nnx.Module):  # type: ignore[misc]
    """x @ weight.T + bias, for one layer or for a stack of them.

    Weights are kept [out, in] and contracted on the last axis: with one row in x (decoding) that
    reads each weight once and in order, which on a CPU is several times faster than [in, out].

    A stack of layers is scanned over in one of two forms. Stacked, the weight has a leading axis L
    and the scan slices it: a GPU fuses the slice into the product. XLA's CPU backend copies the
    slice first, which doubles the memory traffic of decoding; there the layers are `separate`
    arrays, and a `switch` on the layer's index picks one without a copy.

    Attributes:
        weight: [*stack, out, in]; or, separate, an array [out, in] for each layer.
        bias: [*stack, out], or None.
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        *,
        bias: bool = False,
        dtype: jnp.dtype,
        stack: tuple[int, ...] = (),
        separate: bool = False,
    ):
        if separate:
            zeros = jnp.zeros((out_size, in_size), dtype)
            self.weight = nnx.List([LayerParam(zeros) for _ in range(stack[0])])
        else:
            self.weight = nnx.Param(jnp.zeros((*stack, out_size, in_size), dtype))
        self.bias = nnx.Param(jnp.zeros((*stack, out_size), dtype)) if bias else None

    def __call__(
        self,
        x: Float[Array, "T in"],
        layer: Int[Array, ""] | None = None,
        *,
        out_dtype: jnp.dtype | None = None,
    ) -> Float[Array, "T out"]:
        """The product in x's dtype, or accumulated and returned in `out_dtype`.

        Args:
            layer: index of the layer, used when the layers are separate arrays. A stacked weight
                or bias must have been sliced by the scan already.
        """
        times = functools.partial(product, out_dtype=out_dtype or x.dtype)
        if isinstance(self.weight, nnx.List):
            layers = [functools.partial(times, weight[...]) for weight in self.weight]
            out: Array = lax.switch(layer, layers, x)
        else:
            out = times(self.weight[...], x)
        if self.bias is not None:
            out = out + self.bias[...].astype(out.dtype)
        return out


def product(
    weight: Float[Array, "out in"], x: Float[Array, "T in"], *, out_dtype: jnp.dtype
) -> Float[Array, "T out"]:
    """x @ weight.T in float32, returned in `out_dtype`, in the form that suits the device."""
    tokens, platform = x.shape[0], target_device().platform
    if platform == "cpu" and tokens in FEW_ROWS and weight.shape[0] % PARTS == 0:
        return _product_in_parts(weight, x, out_dtype)
    if platform == "gpu" and tokens == 1 and out_dtype != x.dtype:
        # XLA takes one row for a vector, for which cuBLAS has no product of mixed types, and so
        # converts the whole weight first: three times the traffic. It does not for two rows.
        x = jnp.pad(x, ((0, 1), (0, 0)))
    out: Array = lax.dot_general(x, weight, CONTRACT_LAST, preferred_element_type=out_dtype)
    return out[:tokens]


def _product_in_parts(
    weight: Float[Array, "out in"], x: Float[Array, "T in"], out_dtype: jnp.dtype
) -> Float[Array, "T out"]:
    """The same as a batch of smaller products, which XLA's CPU backend shares out better."""
    parts = weight.reshape(PARTS, -1, weight.shape[1])
    same = jnp.broadcast_to(x, (PARTS, *x.shape))
    out = lax.dot_general(parts, same, CONTRACT_LAST_OF_BATCH, preferred_element_type=out_dtype)
    return jnp.asarray(out.reshape(-1, x.shape[0]).T)
