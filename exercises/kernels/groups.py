"""Kernel puzzle 7: rows that are padding.

    out[h] = q[h] . k[h // 3]        q [6, 4], k [2, 4]

Six query heads share two KV heads, three each. Program g computes the three heads of KV head g.
Triton's arrays want sizes that are powers of two, so it computes four rows, and the last one is
padding. A padding row may be computed, but it must be neither read from behind the array nor
written: give `plt.load` and `plt.store` a mask. The kernel below forgets both.

Run it: .venv/bin/python -m exercises.kernels.groups
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from exercises.checking import verdict
from exercises.kernels.examining import examine
from exercises.kernels.launch import Array, Launch, whole

GROUP, ROWS, DIM = 3, 4, 4


def launch(q: Array, k: Array) -> Launch:
    def kernel(q_ref: Any, k_ref: Any, out_ref: Any) -> None:
        g = pl.program_id(0)
        head = g * GROUP + jnp.arange(ROWS)
        place = jnp.broadcast_arrays(head[:, None], jnp.arange(DIM)[None])
        query = plt.load(q_ref.at[tuple(place)])
        plt.store(out_ref.at[head], (query * k_ref[g][None]).sum(axis=1))

    return Launch(
        kernel,
        grid=(2,),
        in_specs=[whole(), whole()],
        out_specs=whole(),
        out_shape=(6,),
    )


Answer = Callable[[Array, Array], Launch]


def check(answer: Answer = launch) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return verdict(lambda: _test(answer))


def _test(answer: Answer) -> None:
    q = np.arange(24, dtype=np.float32).reshape(6, 4)
    k = np.array([[1, 2, 3, 4], [5, -6, 7, -8]], np.float32)
    head = np.arange(6)
    mistakes = {
        "heads 0 and 2 and 4 share a KV head: head h belongs to KV head h // 3, since the heads of "
        "a group lie side by side": (q * k[head % 2]).sum(1),
        "all heads were multiplied with KV head 0": (q * k[0]).sum(1),
    }
    examine(answer(q, k), {"q": q, "k": k}, (q * k[head // GROUP]).sum(1), mistakes)


if __name__ == "__main__":
    raise SystemExit(not check())
