"""Kernel puzzle 5: load by table.

    out[i] = pool[table[i]]    for i < length[0]
    out[i] = 0                 for the others        pool [5, 3], table [6], length [1]

A table is as wide as the longest sequence may get. Its entries from `length` on can be any number:
one that is no row of the pool, or the row of another sequence. A row without an owner can hold NaN.
The kernel below loads first and asks afterwards. On a GPU the load alone is an error: the entry is
followed to memory that is not the pool's. Mend it. (`pl.when(condition)` decorates a function that
is to run only then; or make the index a safe one before it is used.)

Run it: .venv/bin/python -m exercises.kernels.gather
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from exercises.checking import verdict
from exercises.kernels.examining import POISONS, examine
from exercises.kernels.launch import Array, Launch, whole


def launch(pool: Array, table: Array, length: Array) -> Launch:
    def kernel(pool_ref: Any, table_ref: Any, length_ref: Any, out_ref: Any) -> None:
        i = pl.program_id(0)
        row = pool_ref[table_ref[i]]
        out_ref[...] = jnp.where(i < length_ref[0], row, 0.0)

    return Launch(
        kernel,
        grid=(6,),
        in_specs=[whole(), whole(), whole()],
        out_specs=pl.BlockSpec((None, 3), lambda i: (i, 0)),  # None: this axis is taken away
        out_shape=(6, 3),
    )


Answer = Callable[[Array, Array, Array], Launch]


def check(answer: Answer = launch) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return verdict(lambda: _test(answer))


def _test(answer: Answer) -> None:
    pool = np.arange(15, dtype=np.float32).reshape(5, 3) + 1
    tables = {4: [2, 0, 4, 1, 977, -3], 6: [2, 0, 4, 1, 3, 0]}
    for used, entries in tables.items():
        table = np.array(entries, np.int32)
        wanted = np.zeros((6, 3), np.float32)
        wanted[:used] = pool[table[:used]]
        by_number = np.where(np.arange(6)[:, None] < used, pool[np.arange(6) % 5], 0)
        mistakes = {
            "row i of out is row i of the pool: the table says which row it should be": by_number,
            "the rows behind the length are not 0": pool[np.clip(table, 0, 4)],
        }
        if used == 6:
            mistakes.popitem()
        arrays = {"pool": pool, "table": table, "length": np.array([used], np.int32)}
        examine(answer(*arrays.values()), arrays, wanted, mistakes)
    _test_stale_entries(answer, pool)


def _test_stale_entries(answer: Answer, pool: Array) -> None:
    """Behind the length, a table has numbers of rows that belong to others, or to nobody."""
    table, wanted = np.array([2, 1, 4, 1, 3, 0], np.int32), np.zeros((6, 3), np.float32)
    wanted[:4] = pool[table[:4]]
    for poison in POISONS:
        held = pool.copy()
        held[[0, 3]] = poison
        arrays = {"pool": held, "table": table, "length": np.array([4], np.int32)}
        stale = {
            "an entry behind the length can be the number of a row that is there, and its row was "
            "read: compare the position with the length, and not the entry with the "
            "pool": held[table]
        }
        note = (
            f"in this run rows 0 and 3 of the pool, which no entry before the length names, hold "
            f"{poison:g}: choose 0 with `jnp.where`. 0 times NaN is NaN"
        )
        named = stale if np.isfinite(poison) else {}
        examine(answer(*arrays.values()), arrays, wanted, named, note)


if __name__ == "__main__":
    raise SystemExit(not check())
