"""Exercise: which request can never be served, and which has to wait (paper 4.5; `watermark`).

A pool has `num_blocks` blocks of `block_size` tokens. `watermark` of them are to stay free when a
request is admitted. A request has `prompt` tokens and draws `max_tokens`; the last one is never fed
to the model. With `samples` > 1 it becomes so many sequences. Write both functions:

- `most_blocks(request, block_size)`: U, the most blocks that it can come to hold. The prompt's full
  blocks are never written again, so all samples share them. In the worst case each has all others
  for itself.
- `decide(request, pool, free)`, where `free` blocks are free now:
  "never" if U blocks, one more for each sample (each might need one more to take a step) and the
  watermark are more than the pool has;
  "now" if its prompt's blocks can be taken, and at least `watermark` blocks stay free;
  "wait" otherwise.

Run it: python -m exercises.admission
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple

from exercises.checking import expect, report, returned
from exercises.variants import given_seed


class Request(NamedTuple):
    prompt: int
    max_tokens: int
    samples: int = 1


class Pool(NamedTuple):
    num_blocks: int
    block_size: int
    watermark: int


def most_blocks(request: Request, block_size: int) -> int:
    raise NotImplementedError


def decide(request: Request, pool: Pool, free: int) -> str:
    raise NotImplementedError


Answer = tuple[Callable[[Request, int], int], Callable[[Request, Pool, int], str]]


class Numbers(NamedTuple):
    """What a seed changes."""

    block_size: Annotated[int, range(3, 9)] = 4
    watermark: Annotated[int, range(2, 6)] = 1
    samples: Annotated[int, range(2, 6)] = 3


def check(answer: Answer | None = None, seed: int = 0) -> bool:
    """Print what is wrong with (most_blocks, decide); True if nothing is."""
    return report(_test, answer or (most_blocks, decide), Numbers, seed)


def _test(answer: Answer, numbers: Numbers) -> None:
    most_blocks, decide = answer
    size, watermark, samples = numbers

    def most(request: Request, wanted: int, why: str) -> None:
        found = returned(most_blocks(request, size), "most_blocks")
        expect(found, wanted, f"the most blocks of {size} that {_said(request)} holds ({why})")

    most(Request(2 * size, size), 3, f"{3 * size - 1} tokens are fed to the model")
    most(Request(2 * size, size + 1), 3, f"{3 * size} tokens are: the last one is never fed")
    most(Request(2 * size, size + 2), 4, f"{3 * size + 1} tokens are")
    most(Request(1, 1), 1, "the prompt alone")
    shared = Request(2 * size, size + 1, samples)
    most(shared, 2 + samples, "the prompt's two blocks are shared, the third is each one's own")
    partly = Request(2 * size - 1, size + 2, samples)
    most(partly, 1 + 2 * samples, "the prompt's second block is not full: each gets a copy of it")

    def case(request: Request, num_blocks: int, free: int, wanted: str, why: str) -> None:
        pool = Pool(num_blocks, size, watermark)
        found = returned(decide(request, pool, free), "decide")
        what = f"{_said(request)}, {free} of {num_blocks} blocks of {size} free"
        expect(found, wanted, f"{what}, watermark {watermark} ({why})")

    one, fits = Request(2 * size, size + 1), 3 + 1 + watermark
    case(one, fits, fits, "now", "3 blocks, 1 more, and the watermark: all that there are")
    case(one, fits - 1, fits - 1, "never", "one block too few, even with nobody else there")
    case(one, fits, 0, "wait", "others hold all blocks now, and will end")
    case(one, fits, 2 + watermark, "now", "its prompt takes 2, and the watermark stays")
    case(one, fits, 1 + watermark, "wait", "its prompt takes 2: less than the watermark stays")
    fits = 2 + samples + samples + watermark
    case(shared, fits, fits, "now", "each sample might need one block more")
    case(shared, fits - 1, fits - 1, "never", "each sample might need one block more")
    large = Request(9 * size, 1)
    case(large, 10 + watermark, 9 + watermark, "now", "its prompt takes 9, and the watermark stays")


def _said(request: Request) -> str:
    return f"prompt={request.prompt}, max_tokens={request.max_tokens}, samples={request.samples}"


if __name__ == "__main__":
    raise SystemExit(not check(seed=given_seed()))
