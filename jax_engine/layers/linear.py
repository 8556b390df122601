"""Matrix products. Where quantised weights plug in."""

import functools

import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Float, Int

from pallas_kernels.device import target_device

CONTRACT_LAST = (((1,), (1,)), ((), ()))  # x [T, in] with weight [out, in]


HALVED_FROM = 2**16  # elements: smaller matrices are not worth two products


class LayerParam(nnx.Param):  # type: ignore[misc]
    """The weight of one layer, kept as an array of its own rather than in a stack of layers."""


class Linear(nnx.Module):  # type: ignore[misc]
    """x @ weight.T + bias, for one layer or for a stack of them.

    Weights are kept [out, in] and contracted on the last axis: with one row in x (decoding) that
    reads each weight once and in order, which on a CPU is several times faster than [in, out].

    A stack of layers is scanned over in one of two forms. Stacked, the weight has a leading axis L
    and the scan slices it: a GPU fuses the slice into the product. XLA's CPU backend copies the
    slice first, which doubles the memory traffic of decoding; there the layers are `separate`
    arrays, and a `switch` on the layer's index picks one without a copy. What a switch calls runs
    on one core, so each matrix is in two halves (of its rows), whose switches run side by side:
    with one row in x that reads 26 GB/s where one switch reads 20 and the stack 11.

    Attributes:
        weight: [*stack, out, in]; or, separate, for each layer a list of arrays [out / 2, in]
            (of one [out, in] if small).
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
            halved = out_size % 2 == 0 and out_size * in_size >= HALVED_FROM
            parts = 2 if halved else 1
            zeros = jnp.zeros((out_size // parts, in_size), dtype)
            self.weight = nnx.List(
                [nnx.List([LayerParam(zeros) for _ in range(parts)]) for _ in range(stack[0])]
            )
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
        multiply = functools.partial(product, out_dtype=out_dtype or x.dtype)
        if isinstance(self.weight, nnx.List):
            outs = [
                lax.switch(layer, [functools.partial(multiply, part[...]) for part in parts], x)
                for parts in zip(*self.weight, strict=True)
            ]
            out: Array = outs[0] if len(outs) == 1 else jnp.concatenate(outs, axis=1)
        else:
            out = multiply(self.weight[...], x)
        if self.bias is not None:
            out = out + self.bias[...].astype(out.dtype)
        return out


def product(
    weight: Float[Array, "out in"], x: Float[Array, "T in"], *, out_dtype: jnp.dtype
) -> Float[Array, "T out"]:
    """x @ weight.T, accumulated in float32 and returned in `out_dtype`."""
    tokens = x.shape[0]
    if tokens == 1 and out_dtype != x.dtype and target_device().platform == "gpu":
        # XLA takes one row for a vector, for which cuBLAS has no product of mixed types, and so
        # converts the whole weight first: three times the traffic. It does not for two rows.
        x = jnp.pad(x, ((0, 1), (0, 0)))
    out: Array = lax.dot_general(x, weight, CONTRACT_LAST, preferred_element_type=out_dtype)
    return out[:tokens]
