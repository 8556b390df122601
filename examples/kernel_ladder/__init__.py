"""Paged attention in seven rungs, from the textbook sum to the kernel that ships.

Each rung decodes: one query token a sequence, and the same arguments and result everywhere,

    rung(q, kv_cache, block_tables, context_lens, *, scale) -> out

q and out [S, H, D], kv_cache [2, N, K, B, D] of one layer, block_tables [S, W], context_lens [S],
at least 1. S sequences, H query heads, K KV heads, D head dim, N blocks in the pool, B block size,
W table width in blocks. `python -m examples.kernel_ladder` runs them all and counts their work.
"""

from examples.kernel_ladder.in_jnp import gather_and_softmax, online_softmax
from examples.kernel_ladder.in_pallas import one_program_a_head, shared_pages, wide_steps
from examples.kernel_ladder.shipped import shipped
from examples.kernel_ladder.split import split_context

RUNGS = (
    gather_and_softmax,
    online_softmax,
    one_program_a_head,
    shared_pages,
    wide_steps,
    split_context,
    shipped,
)
