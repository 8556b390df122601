"""A row of the result follows a, so the grid's first axis; a column follows b and the second."""

from typing import Any

from jax.experimental import pallas as pl

from exercises.kernels.launch import Array, Launch


def launch(a: Array, b: Array) -> Launch:
    def kernel(a_ref: Any, b_ref: Any, out_ref: Any) -> None:
        out_ref[...] = a_ref[...][:, None] + b_ref[...][None, :]

    return Launch(
        kernel,
        grid=(2, 3),
        in_specs=[
            pl.BlockSpec((2,), lambda i, j: (i,)),
            pl.BlockSpec((2,), lambda i, j: (j,)),
        ],
        out_specs=pl.BlockSpec((2, 2), lambda i, j: (i, j)),
        out_shape=(4, 6),
    )


ANSWER = launch
