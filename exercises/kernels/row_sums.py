"""Kernel puzzle 4: two programs and one place.

    out[r] = the sum of row r of x        x [4, 8]

This kernel has two programs for each row. The first one sets out[r] to 0, and both add to it. A TPU
core runs its programs one after another, so there it is right, and so it is in the interpreter. A
GPU runs them at the same time: that is a race. Change the launch, so that no two programs write one
place. (Each program could also write a sum of its own, but then out would be [4, 2].)

Run it: .venv/bin/python -m exercises.kernels.row_sums
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
    def kernel(x_ref: Any, out_ref: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            out_ref[...] = jnp.zeros(1)

        out_ref[...] += x_ref[...].sum(axis=1)

    return Launch(
        kernel,
        grid=(4, 2),
        in_specs=[pl.BlockSpec((1, 4), lambda r, half: (r, half))],
        out_specs=pl.BlockSpec((1,), lambda r, half: (r,)),
        out_shape=(4,),
    )


Answer = Callable[[Array], Launch]


def check(answer: Answer = launch) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return verdict(lambda: _test(answer))


def _test(answer: Answer) -> None:
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    mistakes = {
        "out has the sum of the first half of each row only": x[:, :4].sum(1),
        "out has the sum of the second half of each row only": x[:, 4:].sum(1),
        "out has the sums of columns, not those of rows": x.sum(0)[:4],
    }
    examine(answer(x), {"x": x}, x.sum(1), mistakes)


if __name__ == "__main__":
    raise SystemExit(not check())
