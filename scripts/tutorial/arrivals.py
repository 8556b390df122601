"""The same requests through two servers with equal memory: the moving picture of the front page.

`OrcaServer` keeps the longest sequence's memory for each request ("max" in the paper's Figure 12).
`PagedServer` gives out blocks as tokens are written. Both are the oracle's; they decide everything,
and this file only writes down what they did.

>>> sum(one.output_len for one in REQUESTS)
900
>>> [played()[name][40]["running"] for name in ("reserved", "paged")]
[5, 15]
"""

from typing import Any

from reference.baselines import BuddyAllocator, OrcaServer
from reference.simulated_paging import PagedServer
from reference.simulator import TraceRequest

SLOTS, LONGEST, BLOCK = 384, 64, 8  # tokens: in memory, in a sequence at most, in a block
COUNT = 48  # requests, one before each step until all have come
CARDS = {
    "reserved": {
        "title": "Reserved",
        "about": f"Each request gets room for {LONGEST} tokens, the most it could need.",
    },
    "paged": {
        "title": "Paged",
        "about": f"Each request gets a block of {BLOCK} tokens when it is about to fill one.",
    },
}


def _spread(number: int, least: int, most: int) -> int:
    """One of least..most by a fixed rule, so that every machine has the same requests."""
    return least + (number * 2654435761 % 2**32) * (most - least + 1) // 2**32


REQUESTS = [
    TraceRequest(float(i), _spread(2 * i + 1, 4, 16), _spread(2 * i + 2, 6, 32))
    for i in range(COUNT)
]


class _Placing(BuddyAllocator):
    """Notes where pieces start, in the order in which requests get theirs."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.starts: list[int] = []

    def allocate(self, length: int) -> int | None:
        start = super().allocate(length)
        if start is not None:
            self.starts.append(start)
        return start


class Reserved:
    """A piece of LONGEST slots for each request."""

    def __init__(self) -> None:
        self.server = OrcaServer(SLOTS, "max", max_model_len=LONGEST)
        self.server.buddy = self.placing = _Placing(SLOTS)
        self._steps: dict[int, int] = {}  # that each running request has had

    def step(self) -> list[int]:
        """Makes one; returns who ended."""
        before = len(self.placing.starts)
        ended = self.server.step().ended
        # Requests are taken in in order of arrival, so the n-th piece is that of request n.
        self._steps |= dict.fromkeys(range(before, len(self.placing.starts)), 0)
        for number in self._steps:
            self._steps[number] += 1
        for number in ended:
            del self._steps[number]
        return ended

    def requests(self) -> list[tuple[int, int, list[int]]]:
        """(number, tokens of output, the slot where its piece starts) of each that runs."""
        return [(n, steps, [self.placing.starts[n]]) for n, steps in self._steps.items()]


class Paged:
    """Blocks of BLOCK slots, taken as tokens are written."""

    def __init__(self) -> None:
        self.server = PagedServer(SLOTS, block_size=BLOCK, max_model_len=LONGEST, watermark=0.0)

    def step(self) -> list[int]:
        """Makes one; returns who ended."""
        return self.server.step().ended

    def requests(self) -> list[tuple[int, int, list[int]]]:
        """(number, tokens of output, its blocks) of each that runs."""
        running = [(int(one.request_id), one.seqs[0]) for one in self.server.scheduler.running]
        table = self.server.blocks.block_table
        return [(number, seq.output_len, table(seq.seq_id)) for number, seq in running]


def played() -> dict[str, list[dict[str, Any]]]:
    """The state of each server after each step, until its last request has ended.

    `requests` has [number, tokens stored, *where] for each that runs: the slot at which its piece
    starts, or its blocks. `served` counts the tokens of output that clients have been sent.
    """
    return {"reserved": _played(Reserved()), "paged": _played(Paged())}


def _played(one: Reserved | Paged) -> list[dict[str, Any]]:
    frames, arrived, finished = list[dict[str, Any]](), 0, set[int]()
    sent = dict[int, int]()
    while arrived < COUNT or one.server.busy:
        if arrived < COUNT:
            one.server.add(arrived, REQUESTS[arrived])
            arrived += 1
        for number in one.step():
            finished.add(number)
            sent[number] = REQUESTS[number].output_len
        running = one.requests()
        # Who has been preempted keeps what was sent; the last token drawn is not stored yet.
        sent |= {number: output for number, output, _ in running}
        frames.append(
            {
                "requests": [
                    [number, REQUESTS[number].prompt_len + output - 1, *where]
                    for number, output, where in running
                ],
                "running": len(running),
                "waiting": arrived - len(finished) - len(running),
                "finished": len(finished),
                "served": sum(sent.values()),
            }
        )
    return frames


def summary() -> dict[str, int]:
    """The numbers of the sentence below the picture."""
    frames = played()
    reserved, paged = frames["reserved"], frames["paged"]
    return {
        "requests": COUNT,
        "slots": SLOTS,
        "tokens": paged[-1]["served"],
        "paged_steps": len(paged),
        "reserved_steps": len(reserved),
        "reserved_served": reserved[len(paged) - 1]["served"],
        "paged_most": max(frame["running"] for frame in paged),
        "reserved_most": max(frame["running"] for frame in reserved),
    }


def sentence(found: dict[str, int]) -> str:
    """The picture in words, for `summary()`."""
    return (
        "{requests} requests arrive, one a step, at two servers with memory for {slots} tokens "
        "each. The paged one has up to {paged_most} in flight and has served all {tokens} tokens "
        "after {paged_steps} steps. By then the reserving server, with at most {reserved_most} in "
        "flight, has served {reserved_served} tokens. Hatched memory is reserved for a request but "
        "holds no tokens yet."
    ).format(**found)
