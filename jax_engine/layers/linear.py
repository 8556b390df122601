"""Matrix products. Where quantised weights plug in."""

import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Float, Int

from pallas_kernels.backends import runs_cpu_kernels
from pallas_kernels.device import target_device

CONTRACT_LAST = (((1,), (1,)), ((), ()))  # x [T, in] with weight [out, in]
NUMBA_DTYPES = ("float32", "bfloat16")


class Matrix(nnx.Param):  # type: ignore[misc]
    """A weight of products, or a stack of them, which on a CPU goes whole into each product.

    Attributes:
        unpacked: its shape [*stack, out, in].
        in_panels: whether it is held in panels instead, as the CPU's own products read it
            (cpu_kernels/linear/panels.py): [*stack, panels, words, columns].
        parts: of how many matrices the panels take turns.
    """


def empty_matrix(unpacked: tuple[int, ...], dtype: jnp.dtype, parts: int = 1) -> Matrix:
    """A matrix of that shape, of zeros, held as suits the device."""
    held, in_panels = unpacked, on_numba(dtype)
    if in_panels:
        from cpu_kernels.linear.panels import panel_shape

        *stack, rows, size = unpacked
        held = (*stack, *panel_shape(rows, size, dtype, parts))
    zeros = jnp.zeros(held, dtype)
    return Matrix(zeros, unpacked=unpacked, in_panels=in_panels, parts=parts)


class Linear(nnx.Module):  # type: ignore[misc]
    """x @ weight.T + bias, for one layer or for a stack of them.

    Weights are [out, in] and contracted on the last axis, as checkpoints have them.

    A stack of layers is scanned over. The scan slices biases, and on a GPU weights, where the
    slice is fused into the product. XLA's CPU backend would copy it first, which doubles the
    memory traffic of decoding; there the weight stays a stack, which the product indexes.

    Attributes:
        weight: [*stack, out, in], on a CPU in panels, those of `parts` matrices in turns.
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
        parts: int = 1,
    ):
        self.weight = empty_matrix((*stack, out_size, in_size), dtype, parts)
        self.bias = nnx.Param(jnp.zeros((*stack, out_size), dtype)) if bias else None

    def __call__(
        self,
        x: Float[Array, "T in"],
        layer: Int[Array, ""] | None = None,
        num_rows: Int[Array, ""] | None = None,
        *,
        out_dtype: jnp.dtype | None = None,
    ) -> Float[Array, "T out"]:
        """The product, accumulated in float32 and returned in `out_dtype`, or `result_dtype(x)`.

        Args:
            layer: index of the layer, used when the weight is still a stack. A bias must have
                been sliced by the scan already.
            num_rows: how many rows of x are not padding; on a CPU the others cost nothing.
        """
        dtype = out_dtype or result_dtype(x)
        out = product(self.weight, x, layer, num_rows, out_dtype=dtype)
        if self.bias is not None:
            out = out + self.bias[...].astype(out.dtype)
        return out


def on_numba(dtype: jnp.dtype) -> bool:
    """Whether numbers of a dtype are computed by the CPU's own kernels here."""
    return dtype.name in NUMBA_DTYPES and runs_cpu_kernels()


def result_dtype(x: Array) -> jnp.dtype:
    """What a layer's products of x are returned in: x's dtype, but on a CPU float32.

    Products are float32 there anyway, and rounding each to bfloat16 took a sixth of a prompt's
    time. What is stored or multiplied again is rounded by whoever does that.
    """
    return jnp.dtype(jnp.float32) if target_device().platform == "cpu" else x.dtype


def product(
    matrix: Matrix,
    x: Float[Array, "T in"],
    layer: Int[Array, ""] | None = None,
    num_rows: Int[Array, ""] | None = None,
    *,
    out_dtype: jnp.dtype,
) -> Float[Array, "T out"]:
    """x @ weight.T in float32, returned in `out_dtype`, in the form that suits the device.

    Args:
        matrix: the weight, or a stack of them.
        layer: which weight of a stack.
        num_rows: how many rows of x are wanted; of the others the result may be anything finite.
    """
    weight: Array = matrix[...]
    if matrix.in_panels:
        from cpu_kernels.linear.linear import linear

        width = matrix.unpacked[-2]
        out = linear(x, weight, width=width, layer=layer, num_rows=num_rows)
        return out.astype(out_dtype)
    if weight.ndim == 3:
        weight = lax.dynamic_index_in_dim(weight, layer, keepdims=False)
    tokens = x.shape[0]
    if target_device().platform == "gpu" and tokens == 1 and out_dtype != x.dtype:
        # XLA takes one row for a vector, for which cuBLAS has no product of mixed types, and so
        # converts the whole weight first: three times the traffic. It does not for two rows.
        x = jnp.pad(x, ((0, 1), (0, 0)))
    out = lax.dot_general(x, weight, CONTRACT_LAST, preferred_element_type=out_dtype)
    return out[:tokens]
