"""The record of a call of paged attention, which all items read; filled in once per call."""

from typing import Any

import numpy as np
from numba import types

from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.structs import FLOAT32S, INT32S, Record, view
from cpu_kernels.simd.vectors import LANES

# Arrays in C order: float32 q and out [T, H, D], alibi_slopes [H] where `has_slopes`, sinks [H]
# where `has_sinks`; top and denominator [T, H], each softmax's largest score and sum of weights.
_ARRAYS = {
    "q": types.intp,
    "kv_cache": types.intp,
    "block_tables": INT32S,
    "context_lens": INT32S,
    "query_start_loc": INT32S,
    "prompt_lens": INT32S,
    "alibi_slopes": FLOAT32S,
    "sinks": FLOAT32S,
    "out": types.intp,
    "top": FLOAT32S,
    "denominator": FLOAT32S,
}
# `kv` is 2, or 1 in a cache whose values are its keys. `width` is D rounded up to whole vectors,
# `kind` XLA's number of the cache's dtype, `plan` an address (`plan.py`). A window or soft_cap of 0
# is none. `longest` is the number of parts of the longest context that one item attends to alone.
_SIZES = (
    "tokens", "seqs", "heads", "kv_heads", "group", "dim", "width", "num_blocks", "block_size",
)  # fmt: skip
_REST = (
    "kv",
    "table_width",
    "window",
    "layer",
    "kind",
    "plan",
    "longest",
    "has_slopes",
    "has_sinks",
)
_NUMBERS = {"scale": types.float32, "soft_cap": types.float32}
WORK = Record("work", _ARRAYS | dict.fromkeys(_SIZES + _REST, types.intp) | _NUMBERS)
WORK_BYTES = 8 * len(WORK.fields)

_as_work = view(WORK)
Work = Any  # for mypy; to Numba a value of type WORK


@inner
def find_work(call: Any) -> Work:
    """A call's record."""
    return _as_work(call.work.address)


@inner
def read_work(call: Any) -> Work:
    """Fills in and returns a call's record."""
    work = find_work(call)
    work.q, work.kv_cache, work.out = call.q.address, call.kv_cache.address, call.out.address
    work.block_tables, work.context_lens = call.block_tables.int32, call.context_lens.int32
    work.query_start_loc, work.prompt_lens = call.query_start_loc.int32, call.prompt_lens.int32
    work.alibi_slopes = call.alibi_slopes.float32
    work.sinks = call.sinks.float32
    work.has_slopes, work.has_sinks = call.alibi_slopes.shape[0], call.sinks.shape[0]
    work.top, work.denominator = call.top.float32, call.denominator.float32
    work.kind = call.kv_cache.dtype
    work.layer, work.window = call.layer.int32[0], call.window.int32[0]
    work.scale, work.soft_cap = call.scale.float32[0], call.soft_cap.float32[0]
    q, kv_cache, block_tables = call.q.shape, call.kv_cache.shape, call.block_tables.shape
    work.tokens, work.heads, work.dim = q[0], q[1], q[2]
    work.seqs, work.table_width = block_tables[0], block_tables[1]
    work.kv = kv_cache[1]
    work.num_blocks, work.kv_heads, work.block_size = kv_cache[2], kv_cache[3], kv_cache[4]
    work.group = work.heads // work.kv_heads
    work.width = -(-work.dim // LANES) * LANES
    return work


@inner
def slope_of(work: Work, head: int) -> Any:
    """A query head's slope, 0 for none."""
    if work.has_slopes == 0:
        return np.float32(0)
    return work.alibi_slopes[head]
