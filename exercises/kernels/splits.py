"""Kernel puzzle 10: merge the parts of a context.

    merged[s] = sum of exp(lse[s, p]) parts[s, p] / sum of exp(lse[s, p])    over the parts p

A long context is cut into P parts, which have a program each. A part leaves its own softmax mean of
the values, parts[s, p], and lse[s, p], the logarithm of the sum of exp(score) over its tokens. A
part without tokens has lse -inf and never wrote its mean, so that can be anything. parts is
[S, P, D], lse [S, P]. The kernel below takes the plain mean of the parts. Mend it.

Run it: .venv/bin/python -m exercises.kernels.splits
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.experimental import pallas as pl

from exercises.checking import verdict
from exercises.kernels.examining import POISONS, examine
from exercises.kernels.launch import Array, Launch


def launch(parts: Array, lse: Array) -> Launch:
    seqs, num_parts, dim = parts.shape

    def kernel(parts_ref: Any, lse_ref: Any, out_ref: Any) -> None:
        out_ref[...] = parts_ref[...].mean(axis=0)

    return Launch(
        kernel,
        grid=(seqs,),
        in_specs=[
            pl.BlockSpec((None, num_parts, dim), lambda s: (s, 0, 0)),
            pl.BlockSpec((None, num_parts), lambda s: (s, 0)),
        ],
        out_specs=pl.BlockSpec((None, dim), lambda s: (s, 0)),
        out_shape=(seqs, dim),
    )


Answer = Callable[[Array, Array], Launch]


def check(answer: Answer = launch) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return verdict(lambda: _test(answer))


def _test(answer: Answer) -> None:
    rng = np.random.default_rng(2)
    parts = rng.standard_normal((2, 4, 3)).astype(np.float32)
    lse = np.log(np.array([[1, 3, 2, 2], [5, 1, 1, 1]], np.float32))

    def merge(lse: Array) -> Array:
        weights = np.exp(lse - lse.max(1, keepdims=True))[..., None]
        weighted = np.where(weights > 0, parts, 0) * weights
        return np.asarray(weighted.sum(1) / weights.sum(1), np.float32)

    weights = np.exp(lse)[..., None]
    plain = {
        "each part counts the same: one with more weight in it must count more": parts.mean(1),
        "the sum is not divided by the sum of the weights": (parts * weights).sum(1),
        "lse is a logarithm: the weight of a part is exp(lse)": (parts * lse[..., None]).sum(1)
        / lse.sum(1)[:, None],
    }
    examine(answer(parts, lse), {"parts": parts, "lse": lse}, merge(lse), plain)
    large = lse + 200
    overflow = {
        "lse is about 200, and exp(200) is infinite in float32: subtract the largest lse "
        "first": np.full((2, 3), np.nan)
    }
    examine(answer(parts, large), {"parts": parts, "lse": large}, merge(large), overflow)
    small = lse - 200
    note = "lse is about -200 in this run, and exp(-200) is 0 in float32: subtract the largest lse"
    examine(answer(parts, small), {"parts": parts, "lse": small}, merge(small), {}, note)
    empty = lse.copy()
    empty[0, 3], empty[1, 1:] = -np.inf, -np.inf
    for poison in POISONS:
        held = parts.copy()
        held[np.isneginf(empty)] = poison
        unmasked = {
            "a part without tokens holds NaN: its weight is 0, but 0 times NaN is NaN. Set its "
            "mean to 0 first": np.full((2, 3), np.nan)
        }
        note = (
            f"in this run a part without tokens holds {poison:g}. It can be any number, so choose "
            "by lse, and not by what the part holds"
        )
        named = unmasked if np.isnan(poison) else {}
        examine(answer(held, empty), {"parts": held, "lse": empty}, merge(empty), named, note)


if __name__ == "__main__":
    raise SystemExit(not check())
