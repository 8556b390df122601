"""A weight as a layer sees it, and the arrays that hold it."""

from typing import NamedTuple

import jax.numpy as jnp

VALUES = "values"  # the name of an array that is the matrix itself, unchanged


class Matrix(NamedTuple):
    """A weight as a layer sees it, whatever its format.

    Attributes:
        shape: [*stack, out, in], as in checkpoints; the stack is the layers, if any.
        dtype: the dtype as which a checkpoint's tensors are read.
        gated: whether the first half of the rows is the gate of a gated product, and the second
            half the part that it multiplies.
        leaves: in how many equal parts products add up a row, as a tree: (0 + 1) + (2 + 3). Then
            devices that have some of the parts each add up to the same bits. Formats that have no
            such products add as they do.
    """

    shape: tuple[int, ...]
    dtype: jnp.dtype
    gated: bool = False
    leaves: int = 1


class ArraySpec(NamedTuple):
    """One array of a format."""

    shape: tuple[int, ...]
    dtype: jnp.dtype
