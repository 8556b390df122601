"""Kernel puzzle 3: the last part is not full.

    out[i] = the sum of x[4 i : 4 i + 4]        x [n]

`pl.cdiv` rounds up. Unless n is a multiple of 4, the last part ends behind the array. What is read
there can be any number (the interpreter gives NaN; the check also tries others). Make the kernel
count only what exists: compare each element's *position* with n, and take 0 in place of the others.
`pl.program_id(0)` is the program's number.

Run it: .venv/bin/python -m exercises.kernels.tail
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from exercises.checking import verdict
from exercises.kernels.examining import examine
from exercises.kernels.launch import Array, Launch


def launch(x: Array) -> Launch:
    (n,) = x.shape

    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = jnp.sum(x_ref[...], keepdims=True)

    return Launch(
        kernel,
        grid=(pl.cdiv(n, 4),),
        in_specs=[pl.BlockSpec((4,), lambda i: (i,))],
        out_specs=pl.BlockSpec((1,), lambda i: (i,)),
        out_shape=(pl.cdiv(n, 4),),
    )


Answer = Callable[[Array], Launch]


def check(answer: Answer = launch) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return verdict(lambda: _test(answer))


def _test(answer: Answer) -> None:
    for n in (8, 10, 13):
        x = np.arange(1, n + 1, dtype=np.float32)
        padded = np.pad(x, (0, -n % 4)).reshape(-1, 4)
        unmasked, full_only = padded.sum(1), padded.sum(1)
        unmasked[n // 4 :] = np.nan
        full_only[n // 4 :] = 0
        mistakes = {}
        if n % 4:
            mistakes = {
                f"x has {n} elements, and the last sum is NaN: the mask is forgotten, or it lets "
                "an element through that lies behind the end": unmasked,
                f"x has {n} elements, and the last sum is 0: a part that is not full counts, "
                "too": full_only,
            }
        examine(answer(x), {"x": x}, padded.sum(1), mistakes)


if __name__ == "__main__":
    raise SystemExit(not check())
