"""An element exists if its position in x, not in the part, is less than n."""

from typing import Any

import jax.numpy as jnp
from jax.experimental import pallas as pl

from exercises.kernels.launch import Array, Launch


def launch(x: Array) -> Launch:
    (n,) = x.shape

    def kernel(x_ref: Any, out_ref: Any) -> None:
        position = 4 * pl.program_id(0) + jnp.arange(4)
        out_ref[...] = jnp.sum(jnp.where(position < n, x_ref[...], 0), keepdims=True)

    return Launch(
        kernel,
        grid=(pl.cdiv(n, 4),),
        in_specs=[pl.BlockSpec((4,), lambda i: (i,))],
        out_specs=pl.BlockSpec((1,), lambda i: (i,)),
        out_shape=(pl.cdiv(n, 4),),
    )


ANSWER = launch
