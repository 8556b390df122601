"""Exercise: compute a prompt in chunks, and find the slots of its tokens (chunked prefill).

A prompt of `length` tokens has the positions 0 to length - 1. The first `cached` of them were found
in the prefix cache. Each step leaves it some budget: what others do not take. Write both functions:

- `cut(length, cached, budgets, block_size, most)`: the chunks, one a step, until the prompt is
  computed or there are no budgets more. A chunk computes the positions `start` to `end - 1`: all
  that are left, but at most the step's budget, and at most `most` (0: no such limit). A step
  without budget has no chunk. `new_blocks` is how many blocks the chunk is the first to write into;
  it may begin within a block that an earlier chunk has begun. `draws` is True for the chunk that
  computes the prompt's last position: only behind it is a token drawn.
- `slots(chunk, table, block_size)`: where the keys and values of each of its positions go. Position
  p lies in block table[p // block_size], at offset p % block_size; a block's slots are counted
  through the whole pool: block * block_size + offset.

Run it: python -m exercises.chunks
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Annotated, NamedTuple

from exercises.checking import expect, report, returned
from exercises.variants import given_seed


class Chunk(NamedTuple):
    start: int
    end: int
    new_blocks: int
    draws: bool


def cut(
    length: int, cached: int, budgets: Sequence[int], block_size: int, most: int = 0
) -> list[Chunk]:
    raise NotImplementedError


def slots(chunk: Chunk, table: Sequence[int], block_size: int) -> list[int]:
    raise NotImplementedError


Answer = tuple[Callable[..., list[Chunk]], Callable[[Chunk, Sequence[int], int], list[int]]]


class Numbers(NamedTuple):
    """What a seed changes. `budget` is what most steps leave the prompt."""

    block_size: Annotated[int, range(3, 9)] = 4
    budget: Annotated[int, range(7, 20)] = 6


def check(answer: Answer | None = None, seed: int = 0) -> bool:
    """Print what is wrong with (cut, slots); True if nothing is."""
    return report(_test, answer or (cut, slots), Numbers, seed)


def _test(answer: Answer, numbers: Numbers) -> None:
    cut, slots = answer
    size, budget = numbers

    def chunks(length: int, cached: int, budgets: list[int], most: int = 0) -> list[Chunk]:
        return [Chunk(*one) for one in returned(cut(length, cached, budgets, size, most), "cut")]

    def spans(found: list[Chunk]) -> list[tuple[int, int]]:
        return [(one.start, one.end) for one in found]

    b, length = budget, 2 * budget + 1
    found = chunks(length, 0, [b] * 5)
    what = f"(start, end) of the chunks of {length} tokens, {b} a step"
    wanted = [(0, b), (b, 2 * b), (2 * b, length)]
    expect(spans(found), wanted, f"{what} (the prompt ends before the budgets do)")
    draws = [one.draws for one in found]
    expect(draws, [False, False, True], "draws of its chunks (only the last position's draws)")
    ends = [0, b, 2 * b, length]
    blocks = [-(-end // size) for end in ends]
    wanted_blocks = [after - before for before, after in pairwise(blocks)]
    found_blocks = [one.new_blocks for one in found]
    what = f"new_blocks of its chunks, in blocks of {size} (one may be begun already)"
    expect(found_blocks, wanted_blocks, what)
    found_blocks = [one.new_blocks for one in chunks(3, 0, [1] * 3)]
    expect(found_blocks, [1, 0, 0], "new_blocks of three chunks of one token each")
    exact = [one.draws for one in chunks(2 * b, 0, [b] * 5)]
    expect(exact, [False, True], f"draws of the chunks of {2 * b} tokens, {b} a step")
    found = chunks(length, 0, [b, 0, 1, b])
    what = f"(start, end) of the chunks of {length} tokens in steps that leave {b}, 0, 1 and {b}"
    wanted = [(0, b), (b, b + 1), (b + 1, length)]
    expect(spans(found), wanted, f"{what} (a step that leaves nothing has no chunk)")
    found = chunks(length, 0, [b])
    what = f"(start, end, draws) of the chunks of {length} tokens in one step that leaves {b}"
    expect([(*span, one.draws) for span, one in zip(spans(found), found, strict=True)],
           [(0, b, False)], f"{what} (the prompt is not done)")  # fmt: skip
    found, cached = chunks(2 * size + 1, 2 * size, [b] * 2), 2 * size
    what = f"the chunks of {cached + 1} tokens of which {cached} are cached"
    expect(found, [Chunk(cached, cached + 1, 1, True)], what)
    found = chunks(9, 0, [b] * 9, most=4)
    what = f"(start, end) of the chunks of 9 tokens, {b} a step, at most 4 a chunk"
    expect(spans(found), [(0, 4), (4, 8), (8, 9)], what)

    table = [7, 1, 3, 5]
    chunk = Chunk(size - 1, 2 * size + 1, 2, True)
    wanted_slots = [7 * size + size - 1, *range(size, 2 * size), 3 * size]
    found_slots = list(returned(slots(chunk, table, size), "slots"))
    what = f"the slots of positions {chunk.start} to {chunk.end - 1} with the table {table}"
    expect(found_slots, wanted_slots, f"{what}, in blocks of {size}")


if __name__ == "__main__":
    raise SystemExit(not check(seed=given_seed()))
