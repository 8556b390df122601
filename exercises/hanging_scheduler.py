"""Exercise: fix a scheduler that hangs (after the code published with the paper).

The scheduler below is right in all but one thing: it accepts everybody. But to take a step, a
running request needs one free block ("it might need one more"), and to come back from the CPU it
needs its blocks and one more. A request that is too large for that waits for ever, and so does
everybody behind it.

Write `accepts`. A request draws max_tokens tokens, and the last one is never fed to the model, so
with the whole pool for itself it comes to hold

    T = prompt + max_tokens - 1  tokens in  U = ceil(T / block_size)  blocks

and needs one more that is free. Accept it if that many are there.

Run it: python -m exercises.hanging_scheduler
"""

from dataclasses import dataclass, field
from random import Random
from typing import Annotated, NamedTuple

from exercises.checking import Wrong, report
from exercises.variants import given_seed


@dataclass
class Request:
    prompt: int
    max_tokens: int
    drawn: int = 0
    blocks: int = 0

    @property
    def finished(self) -> bool:
        return self.drawn == self.max_tokens

    def __str__(self) -> str:
        return f"prompt={self.prompt}, max_tokens={self.max_tokens}"


@dataclass
class Scheduler:
    num_blocks: int
    block_size: int
    waiting: list[Request] = field(default_factory=list)
    running: list[Request] = field(default_factory=list)
    swapped: list[Request] = field(default_factory=list)

    def accepts(self, request: Request) -> bool:
        return True  # the bug

    def add(self, request: Request) -> bool:
        """Queue a request, or refuse it: then it leaves no trace."""
        if not self.accepts(request):
            return False
        self.waiting.append(request)
        return True

    def step(self) -> None:
        """Prompts if one fits and nobody is swapped out, else one token for each that runs."""
        if not self.swapped and self.waiting and self._blocks_for(self.waiting[0]) <= self._free:
            request = self.waiting.pop(0)
            self.running.append(request)
            self._draw(request)
            return
        preempted = self._decode()
        while self.swapped and not preempted and self.swapped[0].blocks + 1 <= self._free:
            self.running.append(self.swapped.pop(0))

    @property
    def _free(self) -> int:
        return self.num_blocks - sum(request.blocks for request in self.running)

    def _blocks_for(self, request: Request) -> int:
        return -(-(request.prompt + request.drawn) // self.block_size)

    def _decode(self) -> bool:
        """One token for each; who lacks a free block takes the blocks of the one who came last."""
        preempted = False
        for request in list(self.running):
            while request in self.running and self._free < 1:
                self.swapped.insert(0, self.running.pop())
                preempted = True
            if request in self.running:
                self._draw(request)
        return preempted

    def _draw(self, request: Request) -> None:
        """Feed all tokens that it has, draw one more."""
        request.blocks = self._blocks_for(request)
        request.drawn += 1
        if request.finished:
            self.running.remove(request)


class Numbers(NamedTuple):
    """What a seed changes."""

    num_blocks: Annotated[int, range(3, 9)] = 4
    block_size: Annotated[int, range(2, 9)] = 4


def check(answer: type[Scheduler] = Scheduler, seed: int = 0) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return report(_test, answer, Numbers, seed)


def _test(answer: type[Scheduler], numbers: Numbers) -> None:
    num_blocks, size = numbers
    full, most = num_blocks * size, (num_blocks - 1) * size
    _run(answer(num_blocks, size), [Request(full + size, 4), Request(3, 3)])
    _run(answer(num_blocks, size), [Request(3, full + size)])
    _run(answer(num_blocks, size), [Request(full - 3, 4), Request(2, 2)])
    for prompt, max_tokens in ((most, 1), (1, most), (most // 2, most - most // 2 + 1)):
        if not answer(num_blocks, size).accepts(Request(prompt, max_tokens)):
            raise Wrong(
                f"it refused prompt={prompt}, max_tokens={max_tokens} in {num_blocks} blocks of "
                f"{size}, though its {most} tokens in memory need {num_blocks - 1} blocks, and one "
                "more is there"
            )
    _may_wait(answer, numbers)
    for seed in range(200):
        random = Random(seed)
        scheduler = answer(random.randint(2, 8), random.randint(1, 4))
        most = scheduler.num_blocks * scheduler.block_size + 2
        _run(
            scheduler,
            [Request(random.randint(1, most), random.randint(1, most)) for _ in range(5)],
        )


def _may_wait(answer: type[Scheduler], numbers: Numbers) -> None:
    """What others hold now is no reason to refuse: they will end."""
    num_blocks, size = numbers
    scheduler, most = answer(num_blocks, size), (num_blocks - 1) * size
    scheduler.add(Request(most - 2, 3))
    scheduler.step()
    if not scheduler.accepts(Request(most - 2, 3)):
        raise Wrong(
            f"it refused prompt={most - 2}, max_tokens=3 in {num_blocks} blocks of {size} because "
            "another one was running; but that one will end, so count all blocks, not those that "
            "are free"
        )


def _run(scheduler: Scheduler, requests: list[Request]) -> None:
    accepted = [request for request in requests if scheduler.add(request)]
    for _ in range(40 * sum(request.max_tokens for request in accepted)):
        scheduler.step()
    stuck = [request for request in accepted if not request.finished]
    if stuck:
        where = next(
            name
            for name in ("running", "swapped", "waiting")
            if any(request is stuck[0] for request in getattr(scheduler, name))
        )
        raise Wrong(
            f"in {scheduler.num_blocks} blocks of {scheduler.block_size} tokens this request was "
            f"accepted, and hangs ({where}, {stuck[0].drawn} tokens drawn): {stuck[0]}"
        )


if __name__ == "__main__":
    raise SystemExit(not check(seed=given_seed()))
