"""Read the part, write the part: which part it is, the BlockSpec says."""

from typing import Any

from jax.experimental import pallas as pl

from exercises.kernels.launch import Array, Launch


def launch(x: Array) -> Launch:
    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = 2 * x_ref[...]

    part = pl.BlockSpec((4,), lambda i: (i,))
    return Launch(kernel, grid=(3,), in_specs=[part], out_specs=part, out_shape=x.shape)


ANSWER = launch
