"""The systems that the paper compares with (6.1): Orca and FasterTransformer.

Both keep a sequence's keys and values in *one* piece of memory, so they have to choose its length
before the output is known. Orca's memory is cut by a *buddy allocator*: pieces have powers of two
as lengths; a larger one is halved until the halves fit, and two free halves become one again.

>>> buddy = BuddyAllocator(28)                       # 16 + 8 + 4
>>> buddy.allocate(5), buddy.allocate(3), buddy.allocate(9), buddy.allocate(1)
(16, 24, 0, None)
>>> buddy.free(24, 3), buddy.allocate(1), buddy.allocate(2)
(None, 24, 26)

Three versions of Orca differ in what they know about the output:

- "oracle"  its true length, which nobody can know
- "pow2"    the next power of two of that: reserves at most twice too much
- "max"     nothing: every request gets the longest sequence that the model allows

>>> [OrcaServer(4096, kind).slots_of(TraceRequest(0.0, 100, 25)) for kind in KINDS]
[125, 132, 2048]
"""

from collections import deque
from heapq import heappop, heappush
from typing import Literal

from reference.cost_model import Work
from reference.simulator import Done, TraceRequest, Usage

Kind = Literal["oracle", "pow2", "max"]
KINDS: tuple[Kind, ...] = ("oracle", "pow2", "max")


def power_of_two(length: int) -> int:
    """The smallest power of two that is not below it."""
    return 1 << (length - 1).bit_length()


class BuddyAllocator:
    """Contiguous pieces of a range of slots, each a power of two long and at a multiple of it."""

    def __init__(self, num_slots: int) -> None:
        """The range is cut into powers of two, the largest first."""
        self.free_pieces: dict[int, list[int]] = {}
        start = 0
        for size in reversed([1 << i for i in range(num_slots.bit_length())]):
            self.free_pieces[size] = [start] if num_slots & size else []
            start += num_slots & size

    def allocate(self, length: int) -> int | None:
        """The start of a piece that holds `length` slots, or None if there is no such piece."""
        size = power_of_two(length)
        fitting = [s for s, starts in self.free_pieces.items() if s >= size and starts]
        if not fitting:
            return None
        piece = min(fitting)
        start = self.free_pieces[piece].pop()
        while piece > size:
            piece //= 2
            self.free_pieces[piece].append(start + piece)
        return start

    def free(self, start: int, length: int) -> None:
        """Give a piece back; it joins its buddy, if that is free, and so on."""
        size = power_of_two(length)
        while start ^ size in self.free_pieces[size]:
            self.free_pieces[size].remove(start ^ size)
            start &= ~size
            size *= 2
        self.free_pieces[size].append(start)


class OrcaServer:
    """Orca: requests join and leave at every step, in contiguous memory.

    A request for several samples needs a piece for each of them: the prompt is computed once, but
    stored for each. Requests are taken in strictly in order of arrival.
    """

    def __init__(
        self, num_slots: int, kind: Kind, *, max_model_len: int = 2048, max_num_seqs: int = 256
    ) -> None:
        self.num_slots, self.kind = num_slots, kind
        self.max_model_len, self.max_num_seqs = max_model_len, max_num_seqs
        self.buddy = BuddyAllocator(num_slots)
        self.waiting: deque[tuple[int, TraceRequest]] = deque()
        self.accepts = True
        self._pieces: dict[int, tuple[TraceRequest, list[int]]] = {}
        self._ends: list[tuple[int, int]] = []  # (last step, number of the request)
        self._now = 0  # steps done
        self._quiet = False
        self._num_seqs = self._stored = self._future = self._slots = 0

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self._pieces)

    @property
    def crowded(self) -> bool:
        return bool(self.waiting)

    def slots_of(self, request: TraceRequest) -> int:
        """How much is reserved for each of its samples."""
        if self.kind == "max":
            return self.max_model_len
        exact = self.kind == "oracle"
        output = request.output_len if exact else power_of_two(request.output_len)
        return min(request.prompt_len + output, self.max_model_len)

    def add(self, number: int, request: TraceRequest) -> None:
        self.waiting.append((number, request))

    def step(self) -> Done:
        """Prompts of whoever fits, and a token for everybody else, in one batch."""
        decoding, context = self._num_seqs, self._stored
        self._stored += decoding
        prompts = 0
        while self.waiting and self._place(*self.waiting[0]):
            _, request = self.waiting.popleft()
            prompts += request.prompt_len
        self._now += 1
        work = Work(prompts + decoding, self._num_seqs, context + decoding)
        usage = self._usage()
        ended = []
        while self._ends and self._ends[0][0] == self._now:
            ended.append(heappop(self._ends)[1])
            self._release(ended[-1])
        self._quiet = not (ended and self.waiting)  # else the first in the queue may fit now
        return Done(work, ended, usage)

    def num_alike(self) -> int:
        return self._ends[0][0] - self._now - 1 if self._quiet and self._ends else 0

    def peek(self) -> Work:
        return Work(self._num_seqs, self._num_seqs, self._stored + self._num_seqs)

    def skip(self, steps: int) -> Done:
        work, before = self.peek(), self._usage()
        self._stored += steps * self._num_seqs
        self._now += steps
        return Done(work, [], before.mean_until(self._usage(), steps))

    def _usage(self) -> Usage:
        """A slot beyond prompt and output is over-provisioning; rounding is the allocator's."""
        reserved = self._future - self._stored
        internal, other = self._slots - self._future, self.num_slots - self._slots
        return Usage(self._stored, reserved, internal, other, len(self._pieces))

    def _place(self, number: int, request: TraceRequest) -> bool:
        """Take pieces for all samples of a request, or none."""
        if self._num_seqs + request.num_samples > self.max_num_seqs:
            return False
        starts: list[int] = []
        for _ in range(request.num_samples):
            start = self.buddy.allocate(self.slots_of(request))
            if start is None:
                for taken in starts:
                    self.buddy.free(taken, self.slots_of(request))
                return self._fail_if_alone(request)
            starts.append(start)
        self._pieces[number] = (request, starts)
        heappush(self._ends, (self._now + request.output_len, number))
        self._count(request, 1)
        self._stored += request.num_samples * request.prompt_len
        return True

    def _fail_if_alone(self, request: TraceRequest) -> bool:
        if not self._pieces:
            raise ValueError(
                f"{request} needs {request.num_samples} pieces of {self.slots_of(request)} slots, "
                f"more than there are in {self.num_slots}"
            )
        return False

    def _release(self, number: int) -> None:
        request, starts = self._pieces.pop(number)
        for start in starts:
            self.buddy.free(start, self.slots_of(request))
        self._count(request, -1)
        written = request.prompt_len + request.output_len - 1
        self._stored -= request.num_samples * written

    def _count(self, request: TraceRequest, sign: int) -> None:
        samples = sign * request.num_samples
        self._num_seqs += samples
        self._future += samples * (request.prompt_len + request.output_len)
        self._slots += samples * self.slots_of(request)


class FasterTransformerServer:
    """FasterTransformer: requests are served in batches, each to its very end.

    The batch is as large as memory allows if every request were as long as the model allows. Short
    prompts are padded to the longest, and whoever ends early waits for the last of the batch.
    """

    def __init__(self, num_slots: int, *, max_model_len: int = 2048) -> None:
        self.max_batch = num_slots // max_model_len
        self.waiting: deque[tuple[int, TraceRequest]] = deque()
        self.accepts = True
        self._batch: list[tuple[int, TraceRequest]] = []
        self._prompt_len = self._output_len = self._done = 0

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self._batch)

    @property
    def crowded(self) -> bool:
        """No step but the first of a batch takes anybody in."""
        return bool(self._batch)

    def add(self, number: int, request: TraceRequest) -> None:
        self.waiting.append((number, request))

    def step(self) -> Done:
        """The prompts of a new batch, or one token for everybody in the batch."""
        if self._batch:
            work = self.peek()
        else:
            count = min(self.max_batch, len(self.waiting))
            self._batch = [self.waiting.popleft() for _ in range(count)]
            self._prompt_len = max(request.prompt_len for _, request in self._batch)
            self._output_len = max(request.output_len for _, request in self._batch)
            self._done = 0
            work = Work(count * self._prompt_len, count)
        self._done += 1
        usage, ended = self._usage(), []
        if self._done == self._output_len:
            ended = [number for number, _ in self._batch]
            self._batch = []
        return Done(work, ended, usage)

    def num_alike(self) -> int:
        return self._output_len - self._done - 1 if self._batch else 0

    def peek(self) -> Work:
        count = len(self._batch)
        return Work(count, count, count * (self._prompt_len + self._done))

    def skip(self, steps: int) -> Done:
        work = self.peek()
        self._done += steps
        return Done(work, [], self._usage())

    def _usage(self) -> Usage:
        """Only how many run: its memory is cut like Orca's "max"."""
        return Usage(requests=len(self._batch))
