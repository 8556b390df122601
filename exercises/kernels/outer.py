"""Kernel puzzle 2: index maps on a grid with two axes.

    out[i, j] = a[i] + b[j]        a [4], b [6]

The grid is (2, 3): program (i, j) computes a part [2, 2] of the result from two numbers of a and
two of b. The kernel is right, but the index maps are not. An index map is a function from
the program's number to the number of its part, counted in parts and not in elements. Mend them.

Run it: .venv/bin/python -m exercises.kernels.outer
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.experimental import pallas as pl

from exercises.checking import verdict
from exercises.kernels.examining import examine
from exercises.kernels.launch import Array, Launch


def launch(a: Array, b: Array) -> Launch:
    def kernel(a_ref: Any, b_ref: Any, out_ref: Any) -> None:
        out_ref[...] = a_ref[...][:, None] + b_ref[...][None, :]

    return Launch(
        kernel,
        grid=(2, 3),
        in_specs=[
            pl.BlockSpec((2,), lambda i, j: (2 * i,)),
            pl.BlockSpec((2,), lambda i, j: (i,)),
        ],
        out_specs=pl.BlockSpec((2, 2), lambda i, j: (i, j)),
        out_shape=(4, 6),
    )


Answer = Callable[[Array, Array], Launch]


def check(answer: Answer = launch) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return verdict(lambda: _test(answer))


def _test(answer: Answer) -> None:
    a = np.array([10, 20, 30, 40], np.float32)
    b = np.arange(6, dtype=np.float32)

    def sums(part_of_a: list[int], part_of_b: list[int]) -> Array:
        rows = a.reshape(2, 2)[part_of_a].reshape(2, 3, 2)
        columns = b.reshape(3, 2)[part_of_b].reshape(2, 3, 2)
        tiles = rows[:, :, :, None] + columns[:, :, None, :]  # program's axes, then the part's
        return tiles.transpose(0, 2, 1, 3).reshape(4, 6)

    # The programs in order: i is 0, 0, 0, 1, 1, 1 and j is 0, 1, 2, 0, 1, 2.
    mistakes = {
        "a column of the result shows another part of b than its own: which axis of the grid "
        "does the column follow?": sums([0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1]),
        "all programs were given part 0 of b": sums([0, 0, 0, 1, 1, 1], [0] * 6),
        "all programs were given part 0 of a": sums([0] * 6, [0, 1, 2, 0, 1, 2]),
    }
    examine(answer(a, b), {"a": a, "b": b}, a[:, None] + b, mistakes)


if __name__ == "__main__":
    raise SystemExit(not check())
