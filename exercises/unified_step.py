"""Exercise: plan one step under a budget of tokens (vLLM V1's scheduler; preemption: paper 4.5).

A request has `length` tokens, of which the first `computed` are in the KV cache. It lacks the
others: a prompt, or the one token drawn last. A step computes at most `budget` tokens. Write
`plan(state)`: how many tokens each request computes in this step, by its name.

1. Running requests come first, in order. Each is to compute all that it lacks, or what is left of
   the budget. If that takes more blocks than are free, preempt the last running request, and again,
   until it does not. A request that is the last itself is preempted, too.
2. If nobody was preempted, waiting requests are admitted, in order, each with all that it lacks or
   what is left of the budget. It moves to the end of `running`. The first one for which no budget
   is left, or behind which fewer than `watermark` blocks would be free, ends this: nobody is passed
   over.

A request that computes nothing is left out of the plan. Given is `State`, with `need`, `take` and
`preempt`.

Run it: python -m exercises.unified_step
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from exercises.checking import Wrong, expect, report, returned
from exercises.variants import given_seed


@dataclass(eq=False)
class Request:
    name: str
    length: int
    computed: int = 0
    blocks: int = 0


@dataclass
class State:
    block_size: int
    budget: int
    watermark: int
    free: int
    running: list[Request] = field(default_factory=list)
    waiting: list[Request] = field(default_factory=list)

    def need(self, request: Request, count: int) -> int:
        """How many blocks more it needs to compute so many tokens more."""
        return -(-(request.computed + count) // self.block_size) - request.blocks

    def take(self, request: Request, count: int) -> None:
        """Give it the blocks for that."""
        need = self.need(request, count)
        request.blocks += need
        self.free -= need

    def preempt(self) -> None:
        """The last running request loses its blocks, and waits before all others."""
        request = self.running.pop()
        self.free += request.blocks
        request.blocks = request.computed = 0
        self.waiting.insert(0, request)


def plan(state: State) -> dict[str, int]:
    raise NotImplementedError


Answer = Callable[[State], dict[str, int]]


class Numbers(NamedTuple):
    """What a seed changes."""

    block_size: Annotated[int, range(3, 9)] = 4
    budget: Annotated[int, range(20, 40)] = 16
    watermark: Annotated[int, range(2, 5)] = 1


def check(answer: Answer = plan, seed: int = 0) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return report(_test, answer, Numbers, seed)


class _Watched(State):
    """A state that notices when blocks are taken that are not free."""

    what = ""

    def take(self, request: Request, count: int) -> None:
        need = self.need(request, count)
        if need > self.free:
            raise Wrong(f"{self.what}: {request.name} takes {need}, but {self.free} are free")
        super().take(request, count)


class _Case(NamedTuple):
    """A state, the plan that is wanted, and who runs | who waits behind the step."""

    what: str
    free: int
    running: list[Request]
    waiting: list[Request]
    wanted: dict[str, int]
    queues: str


def _test(answer: Answer, numbers: Numbers) -> None:
    for case in (*_running(numbers), *_preempting(numbers), *_waiting(numbers)):
        state = _Watched(*numbers, case.free, case.running, case.waiting)
        state.what, everyone = case.what, case.running + case.waiting
        before = case.free + sum(one.blocks for one in everyone)
        expect(returned(answer(state), "plan"), case.wanted, f"{case.what}: the plan")
        names = ["".join(one.name for one in queue) for queue in (state.running, state.waiting)]
        expect(" | ".join(names), case.queues, f"{case.what}: who runs | who waits, afterwards")
        after = before - sum(one.blocks for one in everyone)
        expect(state.free, after, f"{case.what}: the free blocks afterwards")


def _decoding(size: int, name: str, num_blocks: int = 1) -> Request:
    """Its blocks are full, so its next token begins another."""
    return Request(name, num_blocks * size + 1, num_blocks * size, num_blocks)


def _running(numbers: Numbers) -> Iterator[_Case]:
    size, budget, _ = numbers
    what = "A and B draw, C waits with a prompt larger than the budget (they come first)"
    two = [_decoding(size, "A"), _decoding(size, "B")]
    wanted = {"A": 1, "B": 1, "C": budget - 2}
    yield _Case(what, 99, two, [Request("C", budget + 5)], wanted, "ABC | ")
    what = "A lacks 3 tokens more than the budget, B draws, C waits (nothing is left for either)"
    two = [Request("A", budget + size + 3, size, 1), Request("B", size, size - 1, 1)]
    yield _Case(what, 99, two, [Request("C", 1)], {"A": budget}, "AB | C")
    what = "one block is free, and A, which runs, needs it (the watermark is for those who wait)"
    yield _Case(what, 1, [_decoding(size, "A")], [], {"A": 1}, "A | ")


def _preempting(numbers: Numbers) -> Iterator[_Case]:
    size, budget, watermark = numbers
    what = "no block is free, A and B each need one, C runs behind them with 2 blocks"
    three = [_decoding(size, "A"), _decoding(size, "B"), _decoding(size, "C", 2)]
    yield _Case(what, 0, three, [], {"A": 1, "B": 1}, "AB | C")
    many = budget // size + watermark + 3
    what = f"no block is free, A needs one, C runs last with {many}, D waits behind it"
    what += " (C is preempted, so nobody is admitted)"
    three = [_decoding(size, "A"), Request("B", size, size - 1, 1), _decoding(size, "C", many)]
    yield _Case(what, 0, three, [Request("D", 1)], {"A": 1, "B": 1}, "AB | CD")
    what = "no block is free, A lacks two blocks of its prompt, B and C run behind it with 1 each"
    three = [Request("A", 3 * size, size, 1), _decoding(size, "B"), _decoding(size, "C")]
    yield _Case(what, 0, three, [], {"A": 2 * size}, "A | BC")
    what = "no block is free, A needs none, and B, which is the last, needs one"
    two = [Request("A", size, size - 1, 1), _decoding(size, "B")]
    yield _Case(what, 0, two, [], {"A": 1}, "A | B")


def _waiting(numbers: Numbers) -> Iterator[_Case]:
    size, budget, watermark = numbers
    two = [Request("A", 2 * size), Request("B", 1)]
    what = f"A waits and needs 2 blocks, {watermark + 1} are free, B, behind it, needs 1"
    yield _Case(f"{what} (nobody is passed over)", watermark + 1, [], two, {}, " | AB")
    what = f"A waits and needs 2 blocks, {watermark + 2} are free (the watermark stays)"
    yield _Case(what, watermark + 2, [], [Request("A", 2 * size)], {"A": 2 * size}, "A | ")
    what = "A waits with a prompt of nine budgets, and there are blocks for its first chunk alone"
    free = watermark - (-budget // size)
    yield _Case(what, free, [], [Request("A", 9 * budget)], {"A": budget}, "A | ")


if __name__ == "__main__":
    raise SystemExit(not check(seed=given_seed()))
