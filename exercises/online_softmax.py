"""Exercise: attention over blocks that are seen once (paper 4.1).

One query q [D] attends to keys and values that come block by block, each [B, D]:

    out = sum of p_i v_i,    p = softmax(q . k_i)    over all tokens i of all blocks

Write `attend`. `blocks` is an iterator: each block comes by once, and is overwritten when you ask
for the next. So you cannot know the largest score in advance. Keep three things: the largest score
so far m, the sum of exp(score - m) so far, and the same sum weighted with the values. When a new
block has a larger score, what you have was computed with the old m: rescale it. (No 1/sqrt(D)
here.)

Run it: python -m exercises.online_softmax
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, NamedTuple

import numpy as np

from exercises.checking import Wrong, report, returned
from exercises.variants import given_seed

Array = np.ndarray
Blocks = Iterator[tuple[Array, Array]]
Attend = Callable[[Array, Blocks], Array]


def attend(q: Array, blocks: Blocks) -> Array:
    raise NotImplementedError


class Numbers(NamedTuple):
    """What a seed changes: D, and B of all blocks but a last one."""

    head_size: Annotated[int, (2, 3, 5, 6, 8)] = 4
    block_size: Annotated[int, (3, 5, 6, 7)] = 4


def check(answer: Attend = attend, seed: int = 0) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return report(_test, answer, Numbers, seed)


def _whole(q: Array, blocks: Iterable[tuple[Array, Array]]) -> Array:
    """The same, with all scores in memory at a time."""
    keys, values = (np.concatenate(part) for part in zip(*blocks, strict=True))
    scores = keys @ q
    weights = np.exp(scores - scores.max())
    return np.asarray(weights @ values / weights.sum())


def _once(blocks: Iterable[tuple[Array, Array]]) -> Blocks:
    """Each block is gone when the next one is asked for."""
    for keys, values in blocks:
        block = keys.copy(), values.copy()
        yield block
        for part in block:
            part.fill(np.nan)


def _compare(what: str, answer: Attend, q: Array, blocks: list[tuple[Array, Array]]) -> None:
    with np.errstate(all="ignore"):
        found, wanted = returned(answer(q, _once(blocks)), "attend"), _whole(q, blocks)
    if np.shape(found) != q.shape:
        raise Wrong(f"{what}: the result has shape {np.shape(found)}, but q has {q.shape}")
    if not np.isfinite(found).all():
        raise Wrong(
            f"{what}: got {found}. Either a block was used after the next one was asked for, or "
            "something else than the largest score so far was subtracted before exp()"
        )
    if not np.allclose(found, wanted):
        raise Wrong(f"{what}: got {np.round(found, 4)}, but it should be {np.round(wanted, 4)}")


def _test(answer: Attend, numbers: Numbers) -> None:
    size, block = numbers
    rng = np.random.default_rng(0)

    def case(what: str, sizes: list[int], scale: float = 1.0, growing: bool = False) -> None:
        q = rng.normal(size=size)
        shapes = [(n, size) for n in sizes]
        blocks = [(rng.normal(size=one) * scale, rng.normal(size=one)) for one in shapes]
        if growing:
            blocks.sort(key=lambda block: float((block[0] @ q).max()))
        if scale < 0:  # all scores far below 0
            q = np.sign(q) * (1.0 + abs(q))
            blocks = [((scale - abs(keys)) * np.sign(q), values) for keys, values in blocks]
        _compare(what, answer, q, blocks)

    case(f"one block of {block} tokens (no 1/sqrt(D); divide by the sum at the end)", [block])
    what = f"two blocks of {block} tokens (are the old sums rescaled when m grows?)"
    case(what, [block] * 2, growing=True)
    what = f"blocks of {block}, {block} and 1 tokens (each token counts the same, not each block)"
    case(what, [block, block, 1])
    case("six blocks", [block] * 6)
    case("three blocks with scores of several thousand", [block] * 3, scale=3000.0)
    case("three blocks with scores of minus several thousand", [block] * 3, scale=-3000.0)


if __name__ == "__main__":
    raise SystemExit(not check(seed=given_seed()))
