"""What a puzzle returns: a kernel, and how many programs of it see which parts of the arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

Array = np.ndarray


@dataclass(frozen=True)
class Launch:
    """The arguments of `pl.pallas_call`, before it is called. The result is one float32 array.

    Attributes:
        kernel: Called with a reference to each argument, then one to the result.
        grid: The number of programs along each axis.
        in_specs: The part of each argument that a program sees.
        out_specs: The part of the result that a program writes.
        out_shape: Shape of the whole result.
    """

    kernel: Callable[..., None]
    grid: tuple[int, ...]
    in_specs: Sequence[pl.BlockSpec]
    out_specs: pl.BlockSpec
    out_shape: tuple[int, ...]

    def run(self, *arrays: Array) -> Array:
        """Runs it in Pallas's interpreter."""
        shape: Any = jax.ShapeDtypeStruct(self.out_shape, jnp.float32)  # type: ignore[no-untyped-call]
        call = pl.pallas_call(
            self.kernel,
            grid=self.grid,
            in_specs=list(self.in_specs),
            out_specs=self.out_specs,
            out_shape=shape,
            interpret=True,
        )
        return np.asarray(call(*map(jnp.asarray, arrays)))


def whole() -> pl.BlockSpec:
    """Every program sees the whole array, which stays in slow memory."""
    return pl.BlockSpec(memory_space=pl.ANY)
