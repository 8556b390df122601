"""Decode: one program takes one split of one row's context, for the query heads of a KV head.

The heads of a group are the rows of the matrix products, so that each page is read once for all
of them. 16 rows are the least that a tensor core takes; decode waits for memory anyway.
"""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from pallas_kernels.gpu_metadata import GpuMetadata
from pallas_kernels.triton.context import locate, read_heads, read_keys, read_values, write_heads
from pallas_kernels.triton.dialect import (
    SMALLEST,
    launch,
    next_power_of_two,
    program_id,
    shape_of,
    store,
    when,
)
from pallas_kernels.triton.operands import Geometry, Operands
from pallas_kernels.triton.softmax import (
    State,
    empty,
    gather,
    normalised,
    scores,
    scoring,
    value_scale,
)
from pallas_kernels.triton.splits import first_visible, split_steps
from pallas_kernels.tuning import TritonDecodeConfig

# Query heads of one program at most: larger groups are cut, and the second program finds the
# pages in the GPU's cache.
MOST_HEADS = 64


class Partials(NamedTuple):
    """Attention over each of P parts of a context; arbitrary for parts that do not exist.

    Attributes:
        out: normalised output of each part.
        lse: log2 of the sum of the exponentials of the part's scores.
    """

    out: Float[Array, "R H P D"]
    lse: Float[Array, "R H P"]


class Rows(NamedTuple):
    """The decode rows, as in `GpuMetadata`."""

    seq: Int[Array, " R"]
    token: Int[Array, " R"]
    context: Int[Array, " R"]


class Work(NamedTuple):
    """What one program does: steps begin:end of a row's context, for M heads of a KV head."""

    row: Int[Array, ""]
    kv_head: Int[Array, ""]
    head: Int[Array, " M"]
    exists: Bool[Array, " M"]
    begin: Int[Array, ""]
    end: Int[Array, ""]


def heads_per_program(group: int) -> int:
    """Query heads of one KV head that one program takes: a power of two."""
    return min(max(SMALLEST, next_power_of_two(group)), MOST_HEADS)


def programs_per_row(shape: Geometry) -> int:
    """Programs that one split of one row takes."""
    return shape.kv_heads * -(-shape.group // heads_per_program(shape.group))


def attend_rows(
    operands: Operands,
    shape: Geometry,
    metadata: GpuMetadata,
    *,
    config: TritonDecodeConfig,
    splits: int,
    interpret: bool,
) -> Partials:
    """Attention of all decode rows, in `splits` parts."""
    rows = Rows(metadata.row_seq, metadata.row_token, metadata.row_context)
    parts = (rows.seq.shape[0], shape.kv_heads * shape.group, splits)
    found: Partials = launch(
        partial(_program, shape=shape, config=config),
        (operands, rows),
        Partials(shape_of((*parts, shape.dim), jnp.float32), shape_of(parts, jnp.float32)),
        name="paged_decode",
        # The heads of a block lie side by side: so do the programs that read them.
        grid=(programs_per_row(shape), rows.seq.shape[0], splits),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        interpret=interpret,
    )
    return found


def _program(
    operands: Operands,
    rows: Rows,
    partials: Partials,
    *,
    shape: Geometry,
    config: TritonDecodeConfig,
) -> None:
    program, row, split = (program_id(axis) for axis in range(3))
    first, last, each = split_steps(
        rows.context[row], shape.options.window, config.block_kv, partials.lse.shape[2]
    )
    begin = first + split * each

    @when(begin < last)
    def _() -> None:
        size = heads_per_program(shape.group)
        chunks = -(-shape.group // size)
        kv_head = lax.div(program, chunks)
        local = lax.rem(program, chunks) * size + jnp.arange(size, dtype=jnp.int32)
        head, exists = kv_head * shape.group + local, local < shape.group
        work = Work(row, kv_head, head, exists, begin, jnp.minimum(begin + each, last))
        state = _sum_context(operands, rows, work, shape, config.block_kv)
        out, lse = normalised(state, value_scale(operands, kv_head))
        index = tuple(jnp.broadcast_to(x, head.shape)[:, None] for x in (row, head, split))
        write_heads(partials.out, index, shape.dim, exists[:, None], out)
        store(partials.lse.at[row, head, split], lse, mask=exists)


def _sum_context(
    operands: Operands, rows: Rows, work: Work, shape: Geometry, block_kv: int
) -> State:
    seq, token, context = rows.seq[work.row], rows.token[work.row], rows.context[work.row]
    low = first_visible(context, shape.options.window)
    index = (jnp.full_like(work.head, token)[:, None], work.head[:, None])
    q = read_heads(operands.q, index, shape.dim, work.exists[:, None])
    how = scoring(operands, shape, work.kv_head, work.head, work.exists)

    def step(i: Array, state: State) -> State:
        position = i * block_kv + jnp.arange(block_kv, dtype=jnp.int32)
        seen = position < context
        if shape.options.window is not None:
            seen &= position >= low
        where = locate(operands, shape, seq, work.kv_head, position, seen)
        distance = (position - (context - 1))[None, :]
        score = scores(q, read_keys(operands, shape, where), how, distance)
        return gather(state, score, seen[None, :], read_values(operands, shape, where))

    state: State = lax.fori_loop(work.begin, work.end, step, empty(len(work.head), shape.dim))
    return state
