"""Weights in panels: what a product asks of any kind of them."""

import abc
from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from cpu_kernels.linear.panels import panel_shape
from cpu_kernels.simd.words import MULTIPLIES_PAIRS


class Weights(abc.ABC):
    """A weight in panels, or a stack of such weights.

    Attributes:
        kernel: name of the kernel of its products, which `product_kernel` made.
        axes: those of `panels` that belong to one weight; the others are the stack's.
        panels: the panels of the weight, or of all weights of the stack.
    """

    kernel: ClassVar[str]
    axes: ClassVar[int]
    panels: Array

    @property
    def stack(self) -> tuple[int, ...]:
        return self.panels.shape[: -self.axes]

    @abc.abstractmethod
    def check(self, rows: int, size: int, parts: int) -> None:
        """Refuses panels that are not those of weights [rows, size].

        Args:
            parts: number of matrices with equally many rows that a weight consists of. Their panels
                alternate.

        Raises:
            ValueError: the panels do not have the shape of such weights.
        """

    @abc.abstractmethod
    def operands(self, x: Float[Array, "T in"], ends: Int[Array, " groups"]) -> Sequence[Array]:
        """The kernel's own operands: x as it multiplies it, and all weights, one after another."""

    def results(self, x: Float[Array, "T in"]) -> Sequence[jax.ShapeDtypeStruct]:
        """The kernel's results beside the products."""
        return ()


def one_stack(array: Array, axes: int) -> Array:
    """The arrays of all weights, one after another; each has the last `axes`."""
    return array.reshape(-1, *array.shape[-axes:])


def check_words(panels: Array, rows: int, size: int, parts: int) -> None:
    """`Weights.check` for panels of words."""
    expected = panel_shape(rows, size, panels.dtype, parts)
    if panels.shape[-3:] != expected:
        what = "a weight" if parts == 1 else "gate and up"
        raise ValueError(
            f"panels of {what} [{rows}, {size}] must be {expected}, got {panels.shape}"
        )


def words_of(x: Float[Array, "T in"], dtype: jnp.dtype) -> Array:
    """Casts x to the weight's dtype and pads it to whole words.

    Numbers of float16 are widened again, and those of bfloat16 on CPUs without products of it. XLA
    would drop a cast and the one back, so something stands between them. `reduce_precision` does
    not for float16, whose subnormal numbers it takes for zeros.
    """
    if dtype == jnp.float32:
        return x.astype(dtype)
    x = jnp.pad(x, ((0, 0), (0, x.shape[1] % 2)))
    if dtype == jnp.float16:
        halves: Array = lax.optimization_barrier(x.astype(dtype))
        return halves.astype(jnp.float32)
    if MULTIPLIES_PAIRS:
        return x.astype(dtype)
    return lax.reduce_precision(x.astype(jnp.float32), exponent_bits=8, mantissa_bits=7)
