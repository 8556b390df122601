"""Kernel puzzle 1: a part for each program.

    out[i] = 2 x[i]        x [12]

Three programs get four numbers each: the `BlockSpec` below gives program i the part i. Write the
kernel. It is called once for each program, with references to the parts, and returns nothing:
`x_ref[...]` reads the part, `out_ref[...] = ...` writes it.

Run it: .venv/bin/python -m exercises.kernels.double
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.experimental import pallas as pl

from exercises.checking import verdict
from exercises.kernels.examining import examine
from exercises.kernels.launch import Array, Launch


def launch(x: Array) -> Launch:
    def kernel(x_ref: Any, out_ref: Any) -> None:
        raise NotImplementedError

    part = pl.BlockSpec((4,), lambda i: (i,))
    return Launch(kernel, grid=(3,), in_specs=[part], out_specs=part, out_shape=x.shape)


Answer = Callable[[Array], Launch]


def check(answer: Answer = launch) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return verdict(lambda: _test(answer))


def _test(answer: Answer) -> None:
    x = np.arange(1, 13, dtype=np.float32)
    mistakes = {
        "out is x itself: nothing was doubled": x,
        "out is 2 everywhere: the kernel writes a number, not its part times 2": np.full_like(x, 2),
    }
    examine(answer(x), {"x": x}, 2 * x, mistakes)


if __name__ == "__main__":
    raise SystemExit(not check())
