"""Kernel puzzle 9: PagedAttention.

    out[s] = sum of p_i v_i,    p = softmax(q[s] . k_i / sqrt(D))    over i < lengths[s]

Token i of sequence s has its key in cache[0, tables[s, i // B], i % B] and its value at the same
place of cache[1]. q is [S, D], cache [2, N, B, D], tables [S, W], lengths [S]. A sequence has at
least one token. Slots behind its last token can hold anything, NaN too, and so can table entries
that it does not need. Write the kernel: one program for each sequence, a loop over its blocks, the
three numbers of puzzle 8. (`docs/tutorial/pallas-line-by-line.md` has one to compare with.)

Run it: .venv/bin/python -m exercises.kernels.decode
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.experimental import pallas as pl

from exercises.checking import verdict
from exercises.kernels.examining import POISONS, examine
from exercises.kernels.launch import Array, Launch, whole


def launch(q: Array, cache: Array, tables: Array, lengths: Array) -> Launch:
    def kernel(q_ref: Any, cache_ref: Any, tables_ref: Any, lengths_ref: Any, out_ref: Any) -> None:
        raise NotImplementedError

    mine = pl.BlockSpec((None, q.shape[1]), lambda s: (s, 0))
    return Launch(
        kernel,
        grid=(len(q),),
        in_specs=[mine, whole(), whole(), whole()],
        out_specs=mine,
        out_shape=q.shape,
    )


Answer = Callable[[Array, Array, Array, Array], Launch]


def check(answer: Answer = launch) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return verdict(lambda: _test(answer))


TABLES = np.array([[4, 1, 3], [0, 5, 977], [2, -7, 977]], np.int32)
LENGTHS = np.array([5, 4, 1], np.int32)
SIZE = 2
NOBODYS = 6  # a block of the pool that is in no table


def _attend(
    q: Array, cache: Array, *, rounded: int = 1, values: bool = True, scale: bool = True
) -> Array:
    """With all scores at hand.

    Args:
        rounded: Contexts are rounded up to a multiple of it.
        values: Whether the values behind the context count if it is rounded; else they are 0.
        scale: Whether scores are divided by sqrt(D).
    """
    found = []
    for query, table, length in zip(q, TABLES, LENGTHS, strict=True):
        position = np.arange(-(-length // rounded) * rounded)
        block, slot = table[position // SIZE], position % SIZE
        scores = cache[0, block, slot] @ query / (len(query) ** 0.5 if scale else 1)
        weights = np.exp(scores - scores.max())
        held = cache[1, block, slot] * (values | (position < length))[:, None]
        found.append(weights @ held / weights.sum())
    return np.array(found, np.float32)


def _test(answer: Answer) -> None:
    rng = np.random.default_rng(1)
    q = rng.standard_normal((3, 4)).astype(np.float32)
    cache = rng.standard_normal((2, 7, SIZE, 4)).astype(np.float32)
    unmasked = "scores of slots behind the last token count: mask them with -inf"
    in_sum = f"{unmasked} (their values are 0, but their weights are in the sum)"
    mistakes = {
        unmasked: _attend(q, cache, rounded=SIZE),
        in_sum: _attend(q, cache, rounded=SIZE, values=False),
        "scores are not divided by sqrt(D)": _attend(q, cache, scale=False),
        "keys are taken for values": _attend(q, cache[[0, 0]]),
        "keys and values are exchanged": _attend(q, cache[::-1]),
    }
    arrays = {"q": q, "cache": cache, "tables": TABLES, "lengths": LENGTHS}
    examine(answer(*arrays.values()), arrays, _attend(q, cache), mistakes)
    _test_low_scores(answer, arrays)
    _test_poison(answer, arrays)


def _test_low_scores(answer: Answer, arrays: dict[str, Array]) -> None:
    """All scores are near -128, so exp(score) is 0; all are exact, so no rounding is in the way."""
    q, cache = (np.round(8 * arrays[name]) / 8 for name in ("q", "cache"))
    q[:, 0], cache[0, :, :, 0] = -2, 128
    low = {**arrays, "q": q, "cache": cache}
    note = (
        "all scores are below -100 in this run: the largest so far begins with -inf, and a masked "
        "score is -inf"
    )
    examine(answer(*low.values()), low, _attend(q, cache), {}, note)


def _test_poison(answer: Answer, arrays: dict[str, Array]) -> None:
    """Slots of nobody hold anything, and entries that are not needed name their blocks."""
    wanted = _attend(arrays["q"], arrays["cache"])
    spoiled = np.where(LENGTHS[:, None] % SIZE > 0, np.nan, wanted)
    in_nan = {
        "a slot behind the last token holds NaN, as a freed block may, and out is NaN. Its weight "
        "is 0, but 0 times NaN is NaN: mask the values, too": spoiled
    }
    mine = np.zeros(arrays["cache"].shape[1:3], bool)
    for table, length in zip(TABLES, LENGTHS, strict=True):
        position = np.arange(length)
        mine[table[position // SIZE], position % SIZE] = True
    needed = np.arange(TABLES.shape[1]) < -(-LENGTHS[:, None] // SIZE)
    tables = np.where(needed, TABLES, NOBODYS)
    for poison in POISONS:
        held = np.where(mine[None, :, :, None], arrays["cache"], np.float32(poison))
        poisoned = {**arrays, "cache": held, "tables": tables.astype(np.int32)}
        note = (
            f"in this run slots behind a last token hold {poison:g}: mask by position, scores with "
            "-inf before the largest is taken, and values with 0"
        )
        named = in_nan if np.isnan(poison) else {}
        examine(answer(*poisoned.values()), poisoned, wanted, named, note)


if __name__ == "__main__":
    raise SystemExit(not check())
