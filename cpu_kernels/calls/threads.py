"""One call's work shared out over XLA's own threads.

The work is cut into items, numbered from 0. The calling thread and as many others as are free
claim one after another until none is left, so a late or busy thread delays nobody. The caller
waits only for items that another thread has begun; a thread that comes after the end finds
nothing to do. The block of words that they share lives until the last of them has left it.

Items are claimed from ranges of neighbours. Where a thread is faster with items that follow one
another there is a range for each thread, which goes on with the others' when its own is done; else
there is one range for all.
"""

import os

from cpu_kernels.calls.frame import API, CONTEXT
from cpu_kernels.calls.ranges import range_of
from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.memory import call_address, clear, fetch_add, free, malloc
from cpu_kernels.simd.structs import int64s

# Words of a shared block: items done, threads that hold the block, items, frame, threads that have
# sat down, ranges; then the arguments of XLA's function that runs a task on another thread: their
# size in bytes, a word for extensions, the call's context, the task and what it is given; then a
# cache line for each range, with the next item of it.
DONE, HOLDERS, ITEMS, FRAME, SEATS, RANGES = 0, 1, 2, 3, 4, 5
SCHEDULED, SCHEDULED_CONTEXT, SCHEDULED_TASK, SCHEDULED_DATA, NEXT = 8, 10, 11, 12, 16
LINE = 8  # words of a cache line
SCHEDULE = 17  # XLA's function, in its table of functions
SCHEDULE_BYTES = 40  # of its arguments
THREADS = os.cpu_count() or 1
BLOCK_WORDS = NEXT + LINE * THREADS


@inner
def sit_down(block: int) -> int:
    """A number for the calling thread, for `claim`."""
    return fetch_add(block + 8 * SEATS, 1) % THREADS


@inner
def claim(block: int, seat: int) -> int:
    """An item that nobody has begun, or -1: the next one of the thread's range, if there is any."""
    words = int64s(block)
    items, ranges = words[ITEMS], words[RANGES]
    for i in range(ranges):
        owner = (seat + i) % ranges
        first, last = range_of(items, owner, ranges)
        item = first + fetch_add(block + 8 * (NEXT + LINE * owner), 1)
        if item < last:
            return item
    return -1


@inner
def is_followed(item: int, items: int) -> bool:
    """Whether an item's successor is of the same range, where each thread has one of its own."""
    following = item + 1
    owner = -(-following * THREADS // items)  # the first whose range begins there or later
    return following < items and items * owner // THREADS != following


@inner
def frame_of(block: int) -> int:
    """The call whose items they are. Only valid while a claimed item is not `done`."""
    return int64s(block)[FRAME]


@inner
def done(block: int) -> None:
    """The item claimed last is complete."""
    fetch_add(block + 8 * DONE, 1)


@inner
def leave(block: int) -> int:
    """This thread will not look at the block again. Returns 0."""
    if fetch_add(block + 8 * HOLDERS, -1) == 1:
        free(block)
    return 0


@inner
def share(frame: int, items: int, ranges: int, task: int) -> int:
    """Runs all items of a call and returns 0 when the last is done.

    Args:
        frame: the call.
        items: how many there are.
        ranges: 1, or `THREADS` for a range of its own for each thread.
        task: address of the function that works on a block: claim, work, done, and leave.
    """
    block = malloc(8 * BLOCK_WORDS)
    clear(block, 8 * BLOCK_WORDS)
    words, fields = int64s(block), int64s(frame)
    words[HOLDERS], words[ITEMS], words[FRAME], words[RANGES] = 2, items, frame, ranges
    words[SCHEDULED], words[SCHEDULED_CONTEXT] = SCHEDULE_BYTES, fields[CONTEXT]
    words[SCHEDULED_TASK], words[SCHEDULED_DATA] = task, block
    schedule = int64s(fields[API])[SCHEDULE]
    for _ in range(min(THREADS, items) - 1):
        fetch_add(block + 8 * HOLDERS, 1)
        if call_address(schedule, block + 8 * SCHEDULED) != 0:
            leave(block)  # no threads to be had: the caller does it all
            break
    call_address(task, block)
    while fetch_add(block + 8 * DONE, 0) < items:
        pass
    return leave(block)
