"""Distributes one call's work over XLA's own threads.

The work is cut into items, numbered from 0. The calling thread and all free threads claim one item
after another until none is left, so a late or busy thread delays no other. The caller waits only
for items that another thread has begun; a thread that arrives after the end finds no item. All
threads share a block of words, which the last thread to leave frees.

Items are claimed from ranges of consecutive items. If a kernel is faster with consecutive items
(`neighbours`), each thread has its own range and then continues with the other threads' ranges.
Otherwise there is one range. Kernels of rows make an item of a range of rows.
"""

import os

from cpu_kernels.calls.frame import API, CONTEXT
from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.memory import call_address, clear, fetch_add, free, malloc
from cpu_kernels.simd.structs import int64s

# Words of a shared block: items done, threads that hold the block, items, frame, threads that have
# called `sit_down`, ranges; then the arguments of XLA's function that runs a task on another
# thread: their size in bytes, a word for extensions, the call's context, the task and its argument;
# then a cache line for each range, with the range's next item.
DONE, HOLDERS, ITEMS, FRAME, SEATS, RANGES = 0, 1, 2, 3, 4, 5
SCHEDULED, SCHEDULED_CONTEXT, SCHEDULED_TASK, SCHEDULED_DATA, NEXT = 8, 10, 11, 12, 16
LINE = 8  # words of a cache line
SCHEDULE = 17  # word of that function in XLA's table of functions
SCHEDULE_BYTES = 40  # size of its arguments
THREADS = os.cpu_count() or 1
BLOCK_WORDS = NEXT + LINE * THREADS
# Numbers in a range of rows: enough for some microseconds of work, so that claiming it is cheap.
NUMBERS = 16384


@inner
def ranges_for(rows: int, width: int) -> int:
    """Number of ranges that rows of `width` numbers are cut into, at least one."""
    return max(min(rows, rows * width // NUMBERS), 1)


@inner
def range_of(size: int, index: int, count: int) -> tuple[int, int]:
    """Begin and end of range number `index` of `count` equal ranges of `size` things."""
    return size * index // count, size * (index + 1) // count


@inner
def sit_down(block: int) -> int:
    """Gives the calling thread its number for `claim`."""
    return fetch_add(block + 8 * SEATS, 1) % THREADS


@inner
def claim(block: int, seat: int) -> int:
    """Claims an item of the thread's own range, else of another range; -1 if none is left."""
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
    """Whether the next item belongs to the same range, if each thread has its own range."""
    following = item + 1
    owner = -(-following * THREADS // items)  # the first whose range begins there or later
    return following < items and items * owner // THREADS != following


@inner
def frame_of(block: int) -> int:
    """The call's frame. Only valid while the thread has a claimed item that is not `done`."""
    return int64s(block)[FRAME]


@inner
def done(block: int) -> None:
    """Reports that the thread's claimed item is complete."""
    fetch_add(block + 8 * DONE, 1)


@inner
def leave(block: int) -> int:
    """Releases the block for this thread; the last thread frees it. Returns 0."""
    if fetch_add(block + 8 * HOLDERS, -1) == 1:
        free(block)
    return 0


@inner
def share(frame: int, items: int, ranges: int, task: int) -> int:
    """Runs all items of a call and returns 0 when the last is done.

    Args:
        frame: address of the call's frame.
        items: number of items.
        ranges: 1, or `THREADS` to give each thread its own range.
        task: address of the function that claims and computes items until none is left.
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
            leave(block)  # no more threads: the caller computes the remaining items
            break
    call_address(task, block)
    while fetch_add(block + 8 * DONE, 0) < items:
        pass
    return leave(block)
