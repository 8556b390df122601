"""exp(old top - new top) turns what was computed with the old one into what the new one gives."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from exercises.kernels.launch import Array, Launch


def launch(s: Array, v: Array) -> Launch:
    def kernel(s_ref: Any, v_ref: Any, out_ref: Any) -> None:
        def step(i: Any, state: Any) -> Any:
            top, total, out = state
            scores, values = s_ref[pl.ds(4 * i, 4)], v_ref[pl.ds(4 * i, 4)]
            new = jnp.maximum(top, scores.max())
            shrink, weights = jnp.exp(top - new), jnp.exp(scores - new)
            return new, total * shrink + weights.sum(), out * shrink + (weights * values).sum()

        start = (jnp.float32(-jnp.inf), jnp.float32(0), jnp.float32(0))
        _, total, out = jax.lax.fori_loop(0, 3, step, start)
        out_ref[...] = jnp.full(1, out / total)

    row = pl.BlockSpec((None, 12), lambda r: (r, 0))
    return Launch(
        kernel,
        grid=(3,),
        in_specs=[row, row],
        out_specs=pl.BlockSpec((1,), lambda r: (r,)),
        out_shape=(3,),
    )


ANSWER = launch
