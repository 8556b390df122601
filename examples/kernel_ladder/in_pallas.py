"""Rungs 3 to 5: kernels, which read each page where it lies."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from pallas_kernels.triton.dialect import dot, launch, load, program_id, store

MASKED = -1e30
# A GPU's matrix units take no fewer rows than this.
LEAST_ROWS = 16
# Tokens that rung 5 takes at a time.
STEP = 64


def interpreting() -> bool:
    """Kernels run step by step where there is no GPU."""
    return jax.default_backend() == "cpu"


def places(*indices: Array | int) -> tuple[Array, ...]:
    """Indices of one shape, as Pallas wants them: one a dimension and an element."""
    return tuple(jnp.broadcast_arrays(*(jnp.asarray(x, jnp.int32) for x in indices)))


class Running(NamedTuple):
    """Online softmax: weighted sum of values, largest score, sum of weights."""

    out: Array
    top: Array
    total: Array


def one_program_a_head(
    q: Float[Array, "S H D"],
    kv_cache: Float[Array, "2 N K B D"],
    block_tables: Int[Array, "S W"],
    context_lens: Int[Array, " S"],
    *,
    scale: float,
) -> Float[Array, "S H D"]:
    """Rung 3: a program for each sequence and query head walks its block table."""
    seqs, heads, dim = q.shape
    _, _, kv_heads, block_size, _ = kv_cache.shape

    def program(q_ref, kv_ref, tables_ref, lens_ref, out_ref):  # type: ignore[no-untyped-def]
        seq, head = program_id(0), program_id(1)
        slot, lane = jnp.arange(block_size), jnp.arange(dim)
        length = load(lens_ref.at[seq])
        mine = places(seq, head, lane)
        query = load(q_ref.at[mine]).astype(jnp.float32) * scale

        def add_block(column: Array, state: Running) -> Running:
            block = load(tables_ref.at[seq, column])
            seen = column * block_size + slot < length

            def read(which: int) -> Array:
                kv_head = lax.div(head, heads // kv_heads)
                place = places(which, block, kv_head, slot[:, None], lane[None])
                mask = jnp.broadcast_to(seen[:, None], (block_size, dim))
                return load(kv_ref.at[place], mask, 0).astype(jnp.float32)

            scores = jnp.where(seen, (read(0) * query).sum(1), MASKED)
            top = jnp.maximum(state.top, scores.max())
            keep, weights = jnp.exp(state.top - top), jnp.exp(scores - top)
            out = state.out * keep + (weights[:, None] * read(1)).sum(0)
            return Running(out, top, state.total * keep + weights.sum())

        start = Running(jnp.zeros(dim), jnp.float32(MASKED), jnp.float32(0))
        end = lax.fori_loop(0, lax.div(length + block_size - 1, block_size), add_block, start)
        store(out_ref.at[mine], (end.out / end.total).astype(out_ref.dtype))

    return launch(
        program,
        (q, kv_cache, block_tables, context_lens),
        q,
        name="one_program_a_head",
        grid=(seqs, heads),
        num_warps=4,
        num_stages=2,
        interpret=interpreting(),
    )


def shared_pages(
    q: Float[Array, "S H D"],
    kv_cache: Float[Array, "2 N K B D"],
    block_tables: Int[Array, "S W"],
    context_lens: Int[Array, " S"],
    *,
    scale: float,
) -> Float[Array, "S H D"]:
    """Rung 4: a program takes all query heads of a KV head, so each page is read once.

    The heads are the rows of a matrix product. One block is still a step.
    """
    step = max(kv_cache.shape[3], LEAST_ROWS)
    return _grouped(q, kv_cache, block_tables, context_lens, scale=scale, step=step)


def wide_steps(
    q: Float[Array, "S H D"],
    kv_cache: Float[Array, "2 N K B D"],
    block_tables: Int[Array, "S W"],
    context_lens: Int[Array, " S"],
    *,
    scale: float,
) -> Float[Array, "S H D"]:
    """Rung 5: 64 tokens are a step, however many pages they lie in.

    More bytes are in flight while the program waits, and the maximum, the rescaling and the loop
    itself come four times as seldom as with blocks of 16.
    """
    return _grouped(q, kv_cache, block_tables, context_lens, scale=scale, step=STEP)


def _grouped(
    q: Float[Array, "S H D"],
    kv_cache: Float[Array, "2 N K B D"],
    block_tables: Int[Array, "S W"],
    context_lens: Int[Array, " S"],
    *,
    scale: float,
    step: int,
) -> Float[Array, "S H D"]:
    seqs, heads, dim = q.shape
    kv_heads = kv_cache.shape[2]

    def program(q_ref, kv_ref, tables_ref, lens_ref, out_ref):  # type: ignore[no-untyped-def]
        seq, kv_head = program_id(0), program_id(1)
        length = load(lens_ref.at[seq])
        place, exists = rows_of_group(seq, kv_head, heads // kv_heads, dim)
        query = load(q_ref.at[place], exists, 0)
        pages = (kv_ref, tables_ref, seq, kv_head)
        add = partial(add_step, query, pages, length=length, step=step, scale=scale)
        steps = lax.div(length + step - 1, step)
        end = lax.fori_loop(0, steps, add, start_group(*query.shape))
        out = end.out / end.total[:, None]
        store(out_ref.at[place], out.astype(out_ref.dtype), exists)

    return launch(
        program,
        (q, kv_cache, block_tables, context_lens),
        q,
        name="grouped_heads",
        grid=(seqs, kv_heads),
        num_warps=4,
        num_stages=2,
        interpret=interpreting(),
    )


def rows_of_group(
    seq: Array, kv_head: Array, group: int, dim: int
) -> tuple[tuple[Array, ...], Array]:
    """Where the query heads of a KV head lie in q, padded to 16 rows, and which rows exist."""
    row = jnp.arange(max(LEAST_ROWS, 1 << (group - 1).bit_length()))[:, None]
    head = kv_head * group + row
    lane = jnp.arange(dim)[None]
    return places(seq, head, lane), jnp.broadcast_to(row < group, (row.shape[0], dim))


def start_group(rows: int, dim: int) -> Running:
    """Nothing seen yet."""
    return Running(jnp.zeros((rows, dim)), jnp.full(rows, MASKED), jnp.zeros(rows))


def add_step(
    query: Array,
    pages: tuple[Array, Array, Array, Array],
    i: Array,
    state: Running,
    *,
    length: Array,
    step: int,
    scale: float,
) -> Running:
    """The tokens i * step and following: each one's page is found by itself in the table."""
    kv_ref, tables_ref, seq, kv_head = pages
    block_size, dim = kv_ref.shape[3:]
    position = i * step + jnp.arange(step)
    # Past the context the last page is read again: a table may hold anything there.
    column = jnp.minimum(position, length - 1) // block_size
    block = load(tables_ref.at[places(seq, column)])
    seen = jnp.broadcast_to((position < length)[:, None], (step, dim))

    def read(which: int) -> Array:
        slot, lane = position[:, None] % block_size, jnp.arange(dim)[None]
        return load(kv_ref.at[places(which, block[:, None], kv_head, slot, lane)], seen, 0)

    scores = dot(query, read(0), transpose=True) * scale
    scores = jnp.where((position < length)[None], scores, MASKED)
    top = jnp.maximum(state.top, scores.max(1))
    keep, weights = jnp.exp(state.top - top), jnp.exp(scores - top[:, None])
    values = read(1)
    out = state.out * keep[:, None] + dot(weights.astype(values.dtype), values)
    return Running(out, top, state.total * keep + weights.sum(1))
