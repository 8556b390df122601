"""Exercise: beam search over block tables (paper 4.4, Figure 9).

k beams go on together. Each step, every beam has candidates: tokens that it may go on with, and
their log-probabilities. Of all beams and all their candidates the k most probable become the new
beams. So a beam may have several children, or none. Write both functions:

- `select(scores, candidates, k)`: scores[b] is the log-probability of beam b, candidates[b] a list
  of (token, log-probability). Return the k best as (beam, token, score), best first: the score is
  the sum of both. Of equals the lower beam comes first, then the lower token.
- `advance(pool, tables, parents)`: the new beam i goes on from beam parents[i], so it has the same
  blocks. Return the new tables, which are lists of their own. Count holders: each new beam holds
  its blocks, no old beam does any more. A block that is in use must never be free meanwhile, or
  others may get it.

Given is `Pool`. Run it: python -m exercises.beams
"""

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

from exercises.checking import Wrong, expect, report, returned
from exercises.variants import given_seed

Table = list[int]
Candidate = tuple[int, float]
Extension = tuple[int, int, float]


class Pool:
    """How many hold each block. A block without holders is free."""

    def __init__(self, num_blocks: int) -> None:
        self.holders = [0] * num_blocks

    def share(self, block: int) -> None:
        """One holder more."""
        if self.holders[block] == 0:
            raise LookupError(f"block {block} was shared, but it is free: share before you let go")
        self.holders[block] += 1

    def let_go(self, block: int) -> None:
        """One holder less; without holders the block is free."""
        if self.holders[block] == 0:
            raise LookupError(f"a holder of block {block} was taken away, but it has none")
        self.holders[block] -= 1


def select(
    scores: Sequence[float], candidates: Sequence[Sequence[Candidate]], k: int
) -> list[Extension]:
    raise NotImplementedError


def advance(pool: Pool, tables: Sequence[Table], parents: Sequence[int]) -> list[Table]:
    raise NotImplementedError


Answer = tuple[
    Callable[[Sequence[float], Sequence[Sequence[Candidate]], int], list[Extension]],
    Callable[[Pool, Sequence[Table], Sequence[int]], list[Table]],
]


class Numbers(NamedTuple):
    """What a seed changes."""

    k: Annotated[int, (2, 3, 5, 6)] = 4


def check(answer: Answer | None = None, seed: int = 0) -> bool:
    """Print what is wrong with (select, advance); True if nothing is."""
    return report(_test, answer or (select, advance), Numbers, seed)


def _test(answer: Answer, numbers: Numbers) -> None:
    select, advance = answer
    _test_select(select, numbers.k)
    _test_advance(advance, numbers.k)


def _test_select(select: Callable[..., list[Extension]], k: int) -> None:
    def best(
        scores: list[float], candidates: list[list[Candidate]], wanted: list[Extension], why: str
    ) -> None:
        found = list(map(tuple, returned(select(scores, candidates, k), "select")))
        expect(found, wanted, f"the best {k} of {candidates} behind scores {scores} ({why})")

    likely = [[(6, -3.0)], *[[(6, -0.5)]] * (k - 1)]
    wanted = [(0, 6, -4.0), *((b, 6, -8.5) for b in range(1, k))]
    best([-1.0, *[-8.0] * (k - 1)], likely, wanted, "the whole text counts, not its last token")
    many = [(10 + i, -0.25 * (i + 1)) for i in range(k)]
    wanted = [(0, token, -1 + logprob) for token, logprob in many]
    best([-1.0, *[-9.0] * (k - 1)], [many] * k, wanted, "one beam has all the children")
    each = [[(7, -0.5), (8, -4.0)] for _ in range(k)]
    scores = [-1.0 - i / 8 for i in range(k)][::-1]
    wanted = [(b, 7, scores[b] - 0.5) for b in range(k)][::-1]
    best(scores, each, wanted, "best first, and not in order of beams")
    equal = [[(5, -1.0), (3, -1.0)] for _ in range(k)]
    wanted = [(i // 2, (3, 5)[i % 2], -2.0) for i in range(k)]
    best([-1.0] * k, equal, wanted, "all are equals: by beam, then by token")


def _test_advance(advance: Callable[..., list[Table]], k: int) -> None:
    def step(parents: list[int], what: str) -> None:
        pool = Pool(2 * k + 1)
        tables = [[0, 1 + b, 1 + k + b] for b in range(k)]
        pool.holders = [k, *[1] * (2 * k)]
        old = [list(table) for table in tables]
        new = list(map(list, found := returned(advance(pool, tables, parents), "advance")))
        expect(new, [old[b] for b in parents], f"{what}: the new tables of parents {parents}")
        if len({id(table) for table in found}) < k:
            raise Wrong(f"{what}: two beams have the same list for a table, so both would change")
        held = [sum(block in table for table in new) for block in range(2 * k + 1)]
        expect(pool.holders, held, f"{what}: the holders of blocks 0 to {2 * k}")

    step(list(range(k)), "each beam has one child")
    step([k - 1] * k, "the last beam has all the children")
    step([0] * k, "the first beam has all the children")
    step([1] * (k // 2) + [k - 1] * (k - k // 2), "two beams have children")
    step(list(range(k))[::-1], "the beams change their order")


if __name__ == "__main__":
    raise SystemExit(not check(seed=given_seed()))
