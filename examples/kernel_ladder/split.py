"""Rung 6: several programs for one context."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from examples.kernel_ladder.in_pallas import (
    STEP,
    add_step,
    interpreting,
    places,
    rows_of_group,
    start_group,
)
from pallas_kernels import merge_partials
from pallas_kernels.triton.dialect import launch, load, program_id, shape_of, store

SPLITS = 8


def split_context(
    q: Float[Array, "S H D"],
    kv_cache: Float[Array, "2 N K B D"],
    block_tables: Int[Array, "S W"],
    context_lens: Int[Array, " S"],
    *,
    scale: float,
) -> Float[Array, "S H D"]:
    """Rung 6: each context in up to 8 parts, a program each, merged by their log-sum-exp.

    One long context alone keeps K programs busy on rungs 4 and 5, and a GPU has over a hundred
    places for them. The parts are float32: rounding them would cost accuracy eight times.
    """
    seqs, heads, dim = q.shape
    kv_heads = kv_cache.shape[2]

    def program(q_ref, kv_ref, tables_ref, lens_ref, out_ref, lse_ref):  # type: ignore[no-untyped-def]
        seq, kv_head, split = (program_id(axis) for axis in range(3))
        length = load(lens_ref.at[seq])
        steps = lax.div(length + STEP - 1, STEP)
        begin, end = (lax.div(steps * part, SPLITS) for part in (split, split + 1))
        place, exists = rows_of_group(seq, kv_head, heads // kv_heads, dim)
        query = load(q_ref.at[place], exists, 0)
        pages = (kv_ref, tables_ref, seq, kv_head)
        add = partial(add_step, query, pages, length=length, step=STEP, scale=scale)
        state = lax.fori_loop(begin, end, add, start_group(*query.shape))
        # A part without tokens says so by a sum of no weights: its logarithm is -inf.
        lse = jnp.where(begin < end, state.top + jnp.log(state.total), -jnp.inf)
        out = state.out / jnp.where(begin < end, state.total, 1.0)[:, None]
        part = places(split, *place)
        store(out_ref.at[part], out, exists)
        store(lse_ref.at[tuple(x[:, 0] for x in part[:3])], lse, exists[:, 0])

    parts = (SPLITS, seqs, heads)
    out, lse = launch(
        lambda *refs: program(*refs[:-1], *refs[-1]),
        (q, kv_cache, block_tables, context_lens),
        (shape_of((*parts, dim), jnp.float32), shape_of(parts, jnp.float32)),
        name="split_context",
        grid=(seqs, kv_heads, SPLITS),
        num_warps=4,
        num_stages=2,
        interpret=interpreting(),
    )
    merged: jax.Array = merge_partials(out, lse)[0]
    return merged.astype(q.dtype)
