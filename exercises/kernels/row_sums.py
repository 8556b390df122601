"""Kernel puzzle 4: two programs and one place.

    out[r] = the sum of row r of x        x [4, 8]

This kernel has two programs for each row, and both write out[r]. On a TPU core, whose programs run
one after another, one can add to such a part. On a GPU they run at the same time: that is a race.
Change the launch, so that no two programs write one place. (Either one program sees its whole row,
or each program writes a sum of its own, and out is no longer [4]: here it has to be [4].)

Run it: python -m exercises.kernels.row_sums
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.experimental import pallas as pl

from exercises.checking import report
from exercises.kernels.examining import examine
from exercises.kernels.launch import Array, Launch


def launch(x: Array) -> Launch:
    def kernel(x_ref: Any, out_ref: Any) -> None:
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
    return report(_test, answer)


def _test(answer: Answer) -> None:
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    mistakes = {
        "out has the sum of the first half of each row only": x[:, :4].sum(1),
        "out has the sum of the second half of each row only": x[:, 4:].sum(1),
        "out has the sums of columns, not those of rows": x.sum(0)[:4],
    }
    examine(answer(x), {"x": x}, x.sum(1), mistakes)


if __name__ == "__main__":
    check()
