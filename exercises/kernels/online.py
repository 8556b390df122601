"""Kernel puzzle 8: softmax without all scores at hand.

    out[r] = sum of p_i v[r, i],    p = softmax(s[r])        s, v [3, 12]

Program r goes through its row in steps of four, and keeps three numbers: the largest score so far,
the sum of exp(score - largest), and the same sum weighted with the values. The loop below keeps
them, but when a larger score comes, what it has was computed with the old one. Mend it.

Run it: .venv/bin/python -m exercises.kernels.online
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from exercises.checking import verdict
from exercises.kernels.examining import examine
from exercises.kernels.launch import Array, Launch


def launch(s: Array, v: Array) -> Launch:
    def kernel(s_ref: Any, v_ref: Any, out_ref: Any) -> None:
        def step(i: Any, state: Any) -> Any:
            top, total, out = state
            scores, values = s_ref[pl.ds(4 * i, 4)], v_ref[pl.ds(4 * i, 4)]
            new = jnp.maximum(top, scores.max())
            weights = jnp.exp(scores - new)
            return new, total + weights.sum(), out + (weights * values).sum()

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


Answer = Callable[[Array, Array], Launch]


def check(answer: Answer = launch) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return verdict(lambda: _test(answer))


def _online(s: Array, v: Array, *, sum_shrinks: bool, values_shrink: bool) -> Array:
    """Row by row; without one or both of the two rescalings."""
    found = []
    for scores, values in zip(s, v, strict=True):
        top, total, out = -np.inf, 0.0, 0.0
        for part, held in zip(scores.reshape(3, 4), values.reshape(3, 4), strict=True):
            new = max(top, part.max())
            shrink, weights = np.exp(top - new), np.exp(part - new)
            total = total * (shrink if sum_shrinks else 1) + weights.sum()
            out = out * (shrink if values_shrink else 1) + (weights * held).sum()
            top = new
        found.append(out / total)
    return np.array(found, np.float32)


def _test(answer: Answer) -> None:
    rng = np.random.default_rng(0)
    v = rng.standard_normal((3, 12)).astype(np.float32)
    rising = np.sort(rng.standard_normal((3, 12)), axis=1).astype(np.float32) * 3
    for s in (rising, rising[:, ::-1] * 100, rising * 100, rising - 1000):
        s = np.ascontiguousarray(s)
        weights = np.exp(s - s.max(1, keepdims=True))
        wanted = ((weights * v).sum(1) / weights.sum(1)).astype(np.float32)
        mistakes = {
            "the old sums are not rescaled: when the largest score grows from m to M, both are too "
            "large by exp(M - m)": _online(s, v, sum_shrinks=False, values_shrink=False),
            "the sum of weights is not rescaled, only that of the values": _online(
                s, v, sum_shrinks=False, values_shrink=True
            ),
            "the weighted sum of values is not rescaled, only that of the weights": _online(
                s, v, sum_shrinks=True, values_shrink=False
            ),
            "the sum is not divided by the sum of weights at the end": (weights * v).sum(1),
        }
        note = "all scores are below -900 in this run: the largest so far begins with -inf"
        examine(answer(s, v), {"s": s, "v": v}, wanted, mistakes, note if s.max() < -900 else "")


if __name__ == "__main__":
    raise SystemExit(not check())
