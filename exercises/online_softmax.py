"""Exercise 3: attention over blocks that are seen once (paper 4.1).

One query q [D] attends to keys and values that come block by block, each [B, D]:

    out = sum of p_i v_i,    p = softmax(q . k_i)    over all tokens i of all blocks

Write `attend`. `blocks` is an iterator: each block comes by once, and there is no second pass, so
you cannot know the largest score in advance. Keep three things: the largest score so far m, the sum
of exp(score - m) so far, and the same sum weighted with the values. When a new block has a larger
score, what you have was computed with the old m: rescale it. (No 1/sqrt(D) here.)

Run it: python -m exercises.online_softmax
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from exercises.checking import Wrong, report

Array = np.ndarray
Blocks = Iterator[tuple[Array, Array]]
Attend = Callable[[Array, Blocks], Array]


def attend(q: Array, blocks: Blocks) -> Array:
    raise NotImplementedError


def check(answer: Attend = attend) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return report(_test, answer)


def _whole(q: Array, blocks: Iterable[tuple[Array, Array]]) -> Array:
    """The same, with all scores in memory at a time."""
    keys, values = (np.concatenate(part) for part in zip(*blocks, strict=True))
    scores = keys @ q
    weights = np.exp(scores - scores.max())
    return np.asarray(weights @ values / weights.sum())


def _test(answer: Attend) -> None:
    rng = np.random.default_rng(0)

    def case(what: str, sizes: list[int], scale: float = 1.0, growing: bool = False) -> None:
        q = rng.normal(size=4)
        blocks = [(rng.normal(size=(n, 4)) * scale, rng.normal(size=(n, 4))) for n in sizes]
        if growing:
            blocks.sort(key=lambda block: float((block[0] @ q).max()))
        with np.errstate(all="ignore"):
            found, wanted = answer(q, iter(blocks)), _whole(q, blocks)
        if np.shape(found) != (4,):
            raise Wrong(f"{what}: the result has shape {np.shape(found)}, but q has (4,)")
        if not np.isfinite(found).all():
            raise Wrong(
                f"{what}: got {found}; exp() of a large score overflows, so subtract m first"
            )
        if not np.allclose(found, wanted):
            raise Wrong(f"{what}: got {np.round(found, 4)}, but it should be {np.round(wanted, 4)}")

    case("one block of 4 tokens", [4])
    case("two blocks of 4 tokens (are the old sums rescaled when m grows?)", [4, 4], growing=True)
    case("blocks of 4, 4 and 1 tokens (each token counts the same, not each block)", [4, 4, 1])
    case("six blocks", [4] * 6)
    case("three blocks with scores of several thousand", [4] * 3, scale=3000.0)


if __name__ == "__main__":
    check()
