"""Kernel puzzle 6: a step of six tokens, in blocks of four.

    out[p] = pool[table[p // 4], p % 4]    for p < length[0]
    out[p] = 0                             for the others

pool is [blocks, 4, 2], table [4], and length [1]. Program i takes the six positions from 6 i on, so
its tokens lie in two or three blocks, and each token must find its own. `plt.load` takes one index
for each axis, all of one shape [6, 2], and a mask of that shape: where the mask is false nothing is
read, and `other` is given instead. The kernel below reads one block for all six. Mend it. (What is
behind the length can be anything: slots, and entries of the table.)

Run it: .venv/bin/python -m exercises.kernels.tokens
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from exercises.checking import verdict
from exercises.kernels.examining import POISONS, examine
from exercises.kernels.launch import Array, Launch, whole


def launch(pool: Array, table: Array, length: Array) -> Launch:
    def kernel(pool_ref: Any, table_ref: Any, length_ref: Any, out_ref: Any) -> None:
        position = 6 * pl.program_id(0) + jnp.arange(6)
        seen = position < length_ref[0]
        block = jnp.full(6, table_ref[6 * pl.program_id(0) // 4])
        slot = position % 4
        rows, columns = jnp.arange(6)[:, None], jnp.arange(2)[None]
        place = jnp.broadcast_arrays(block[rows], slot[rows], columns)
        mask = jnp.broadcast_to(seen[:, None], (6, 2))
        out_ref[...] = plt.load(pool_ref.at[tuple(place)], mask=mask, other=0.0)

    return Launch(
        kernel,
        grid=(2,),
        in_specs=[whole(), whole(), whole()],
        out_specs=pl.BlockSpec((6, 2), lambda i: (i, 0)),
        out_shape=(12, 2),
    )


Answer = Callable[[Array, Array, Array], Launch]


def check(answer: Answer = launch) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return verdict(lambda: _test(answer))


def _test(answer: Answer) -> None:
    pool = np.arange(48, dtype=np.float32).reshape(6, 4, 2) + 1
    position = np.arange(12)
    for used, table in ((12, [3, 0, 5, 977]), (9, [4, 1, 2, -1]), (7, [2, 5, 977, 977])):
        seen = (position < used)[:, None]
        safe = np.clip(table, 0, 5)
        first = safe[6 * (position // 6) // 4]
        mistakes = {
            "all six tokens of a program were read from the block of its first one: a token's own "
            "is table[position // 4]": np.where(seen, pool[first, position % 4], 0),
            "slots were counted from the program's first token: a token's slot is "
            "position % 4": np.where(seen, pool[safe[position // 4], position % 6 % 4], 0),
            "tokens behind the length were read, too": pool[safe[position // 4], position % 4],
        }
        if used == 12:
            mistakes.popitem()
        wanted = np.where(seen, pool[safe[position // 4], position % 4], 0).astype(np.float32)
        _examine(answer, pool, table, used, wanted, mistakes)
    _test_poison(answer, pool)


def _examine(answer: Answer, pool: Array, table: list[int], used: int, *rest: Any) -> None:
    numbers = {"table": np.array(table, np.int32), "length": np.array([used], np.int32)}
    arrays = {"pool": pool, **numbers}
    examine(answer(*arrays.values()), arrays, *rest)


def _test_poison(answer: Answer, pool: Array) -> None:
    """Slots behind the length hold anything, and a table has blocks of others there."""
    table, used, position = [4, 1, 2, 5], 9, np.arange(12)
    block, slot = np.array(table)[position // 4], position % 4
    wanted = np.where((position < used)[:, None], pool[block, slot], 0).astype(np.float32)
    for poison in POISONS:
        held = np.full_like(pool, poison)
        held[block[:used], slot[:used]] = pool[block[:used], slot[:used]]
        note = (
            f"in this run all slots but the first {used} positions' hold {poison:g}: give the load "
            "a mask and `other`, or choose with `jnp.where`. 0 times NaN is NaN"
        )
        _examine(answer, held, table, used, wanted, {}, note)


if __name__ == "__main__":
    raise SystemExit(not check())
