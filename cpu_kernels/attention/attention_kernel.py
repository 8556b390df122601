"""The kernel of paged attention: its operands and its work items.

It is a file of its own, since the tests put checks of shapes around the functions of
`paged_attention.py`, and Numba cannot compile a function with such a check around it.
"""

from typing import Any

from cpu_kernels.attention.decode import attend_decode, decode_floats
from cpu_kernels.attention.plan import clear_unseeing, find_item, make_plan
from cpu_kernels.attention.prefill import attend_tile, prefill_floats
from cpu_kernels.attention.work import find_work, read_work
from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.memory import free

NAME = "cpu_kernels.paged_attention"


@inner
def _items(call: Any) -> int:
    """Fills in the call's record and plans its work."""
    work = read_work(call)
    clear_unseeing(work)
    return make_plan(work)


@inner
def _scratch(call: Any) -> int:
    work = find_work(call)
    return 4 * max(decode_floats(work), prefill_floats(work))


@inner
def _free_plan(call: Any) -> None:
    free(find_work(call).plan)


@cpu_kernel(
    NAME,
    operands="q kv_cache block_tables context_lens query_start_loc prompt_lens layer scale "
    "soft_cap window alibi_slopes sinks",
    results="out top denominator work",
    items=_items,
    scratch=_scratch,
    finish=_free_plan,
)
@inner
def attend(call: Any, number: int, scratch: int) -> None:
    """One item of one call."""
    work = find_work(call)
    item = find_item(work, number)
    if item.is_decode:
        attend_decode(work, item, scratch)
    else:
        attend_tile(work, item, scratch)
