"""One call's work shared out over XLA's own threads.

The work is cut into chunks, numbered from 0. The calling thread and as many others as are free
claim one after another until none is left, so a late or busy thread delays nobody. The caller
waits only for chunks that another thread has begun; a thread that comes after the end finds
nothing to do. The block of words that they share lives until the last of them has left it.

Where chunks that follow one another are better done by the same thread, each claims them from a
range of its own (`claim_next`), and from the others' when that is done.
"""

import os

import numpy as np

from cpu_kernels.ffi import API, CONTEXT, FRAME_WORDS
from cpu_kernels.jit import inner
from cpu_kernels.native import (
    call_address,
    fetch_add,
    free,
    malloc,
    words,
)
from cpu_kernels.row_shares import range_of

# Words of a shared block: next chunk, chunks done, threads that hold the block, chunks, frame, and
# threads that have sat down; then a line for each thread's range, with the next chunk of it.
NEXT, DONE, HOLDERS, CHUNKS, FRAME, SEATS, RANGES = 0, 8, 16, 24, 32, 40, 64
API_WORDS, SCHEDULE = 19, 17
HELPERS = max((os.cpu_count() or 1) - 1, 0)
BLOCK_BYTES = RANGES + 64 * (HELPERS + 1)


@inner
def claim(block: int) -> int:
    """A chunk that nobody has begun, or -1."""
    chunk = fetch_add(block + NEXT, 1)
    return int(chunk) if chunk < words(block + CHUNKS, 1)[0] else -1


@inner
def sit_down(block: int) -> int:
    """A number for the calling thread, for `claim_next`."""
    return int(fetch_add(block + SEATS, 1)) % (HELPERS + 1)


@inner
def claim_next(block: int, seat: int) -> tuple[int, int]:
    """A chunk that nobody has begun, or -1: the next one of the thread's range, if there is any.

    And how many chunks follow it in that range.
    """
    chunks, ranges = int(words(block + CHUNKS, 1)[0]), HELPERS + 1
    for i in range(ranges):
        owner = (seat + i) % ranges
        first, last = range_of(chunks, owner, ranges)
        chunk = first + fetch_add(block + RANGES + 64 * owner, 1)
        if chunk < last:
            return chunk, last - 1 - chunk
    return -1, 0


@inner
def frame_of(block: int) -> int:
    """The call whose chunks they are. Only valid while a claimed chunk is not `done`."""
    return int(words(block + FRAME, 1)[0])


@inner
def done(block: int) -> None:
    """The chunk claimed last is complete."""
    fetch_add(block + DONE, 1)


@inner
def leave(block: int) -> int:
    """This thread will not look at the block again. Returns 0."""
    if fetch_add(block + HOLDERS, -1) == 1:
        free(block)
    return 0


@inner
def share(frame: int, chunks: int, task: int) -> int:
    """Runs all chunks of a call and returns 0 when the last is done.

    Args:
        frame: The call.
        chunks: How many there are.
        task: Address of the function that works on a block: claim, work, done, and leave.
    """
    helpers = min(HELPERS, chunks - 1)
    block = malloc(BLOCK_BYTES)
    shared = words(block, BLOCK_BYTES // 8)
    shared[:] = 0
    shared[HOLDERS // 8], shared[CHUNKS // 8], shared[FRAME // 8] = 2, chunks, frame
    fields = words(frame, FRAME_WORDS)
    schedule = words(fields[API], API_WORDS)[SCHEDULE]
    arguments = np.array([40, 0, fields[CONTEXT], task, block])
    for _ in range(helpers):
        fetch_add(block + HOLDERS, 1)
        if call_address(schedule, arguments.ctypes.data) != 0:
            leave(block)  # no threads to be had: the caller does it all
            break
    call_address(task, block)
    while fetch_add(block + DONE, 0) < chunks:
        pass
    return leave(block)
