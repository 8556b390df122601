"""The handler that XLA calls for one attention, and the task that its threads share.

Importing this compiles it, or loads it from Numba's cache.
"""

from numba import cfunc, njit

from cpu_kernels import ffi, threads
from cpu_kernels.decode import attend_part, decode_floats
from cpu_kernels.ffi import HANDLER
from cpu_kernels.jit import cached
from cpu_kernels.native import address_of, free, malloc
from cpu_kernels.plan import clear_unseeing, find_item, make_plan, query_count
from cpu_kernels.prefill import attend_tile, prefill_floats
from cpu_kernels.work import find_work, read_work

# The 1 counts changes of what the operands mean: see `ffi.register`.
NAME = "cpu_kernels.paged_attention"


@cached(njit, "int64(int64)")
def task(block: int) -> int:
    """Works on a call's items until none is left."""
    scratch = 0
    while True:
        number = threads.claim(block)
        if number < 0:
            if scratch != 0:
                free(scratch)
            return threads.leave(block)
        work = find_work(threads.frame_of(block))
        if scratch == 0:
            scratch = malloc(4 * max(decode_floats(work), prefill_floats(work)))
        item = find_item(work, number)
        if query_count(work, item.seq) == 1:
            attend_part(work, item, scratch)
        else:
            attend_tile(work, item, scratch)
        threads.done(block)


@cached(cfunc, HANDLER)
def handler(frame: int) -> int:
    """One call."""
    if not ffi.executes(frame):
        return 0
    work = read_work(frame)
    clear_unseeing(work)
    items = make_plan(work)
    if items > 0:
        threads.share(frame, items, address_of(task))
    free(work.plan)
    return 0


ffi.register(NAME, handler)
