"""Decode: a program attends to one split of one row's context, for the query heads of a KV head.

If there are more splits than programs, a program takes several, each with sums of its own.

The heads of a group are the rows of the matrix products, so each page is read once for all heads.
Products are padded to the tensor core's minimum of 16 rows; decode is bound by memory anyway.
"""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from pallas_kernels.gpu_metadata import GpuMetadata
from pallas_kernels.triton.dialect import (
    SMALLEST,
    launch,
    next_power_of_two,
    program_id,
    shape_of,
    store,
    when,
)
from pallas_kernels.triton.heads import write_heads
from pallas_kernels.triton.operands import Geometry, Operands
from pallas_kernels.triton.softmax import normalised
from pallas_kernels.triton.splits import split_steps
from pallas_kernels.triton.steps import Rows, attend_steps, make_task, start, value_scale
from pallas_kernels.tuning import TritonDecodeConfig

# Most query heads of one program; fewer in float32, whose products take more registers. Larger
# groups are cut, and the second program finds the pages in the GPU's cache.
MOST_HEADS, MOST_HEADS_FLOAT32 = 32, 16


class Partials(NamedTuple):
    """Attention over each of P parts of a context; arbitrary for parts without work.

    Attributes:
        out: normalised output of each part.
        lse: log2 of the sum of the exponentials of the part's scores.
    """

    out: Float[Array, "R H P D"]
    lse: Float[Array, "R H P"]


class DecodeRows(NamedTuple):
    """The decode rows, as in `GpuMetadata`."""

    seq: Int[Array, " R"]
    token: Int[Array, " R"]
    context_len: Int[Array, " R"]


def heads_per_program(shape: Geometry) -> int:
    """Query heads of one KV head in one program, a power of two."""
    most = MOST_HEADS_FLOAT32 if shape.compute_dtype.itemsize == 4 else MOST_HEADS
    return min(max(SMALLEST, next_power_of_two(shape.group)), most)


def programs_per_row(shape: Geometry) -> int:
    """Programs for one split of one row."""
    return shape.kv_heads * -(-shape.group // heads_per_program(shape))


def attend_rows(
    operands: Operands,
    shape: Geometry,
    metadata: GpuMetadata,
    *,
    config: TritonDecodeConfig,
    splits: int,
    programs: int,
    interpret: bool,
) -> Partials:
    """Attention of all decode rows, in `splits` parts that so many programs share."""
    rows = DecodeRows(metadata.row_seq, metadata.row_token, metadata.row_context_len)
    parts = (rows.seq.shape[0], shape.kv_heads * shape.group, splits)
    found: Partials = launch(
        partial(
            _program,
            shape=shape,
            block_kv=config.block_kv,
            programs=programs,
            batch_invariant=metadata.batch_invariant,
        ),
        (operands, rows),
        Partials(shape_of((*parts, shape.dim), jnp.float32), shape_of(parts, jnp.float32)),
        name="paged_decode",
        # The heads of a block are neighbours in memory, so the programs that read them are, too.
        grid=(programs_per_row(shape), rows.seq.shape[0], programs),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        interpret=interpret,
    )
    return found


def _program(
    operands: Operands,
    decodes: DecodeRows,
    partials: Partials,
    *,
    shape: Geometry,
    block_kv: int,
    programs: int,
    batch_invariant: bool,
) -> None:
    program, row, lane = (program_id(axis) for axis in range(3))
    splits = partials.lse.shape[2]
    context_len = decodes.context_len[row]
    first, end, each = split_steps(context_len, shape.options.window, block_kv, splits)

    def attend(split: Array) -> None:
        begin = first + split * each
        rows = _heads(decodes, row, program, shape)
        task = make_task(operands, shape, rows, block_kv)
        last = jnp.minimum(begin + each, end)
        _, state = attend_steps(task, begin, last, start(task, begin), masked=True)
        out, lse = normalised(state, value_scale(task))
        index = tuple(jnp.full_like(rows.head, x)[:, None] for x in (row, split))
        place = (index[0], rows.head[:, None], index[1])
        write_heads(partials.out, place, shape.dim, rows.exists[:, None], out)
        store(partials.lse.at[row, rows.head, split], lse, rows.exists)

    if programs == splits and not batch_invariant:
        when(first + lane * each < end)(lambda: attend(lane))
    else:  # the same loop for any number of programs
        used = lax.div(end - first + each - 1, each)
        turns = lax.div(jnp.maximum(used - lane, 0) + (programs - 1), programs)
        lax.fori_loop(0, turns, lambda turn, _: attend(lane + turn * programs), None)


def _heads(decodes: DecodeRows, row: Array, program: Array, shape: Geometry) -> Rows:
    """A decode row's query token, once for each query head of the program."""
    size = heads_per_program(shape)
    chunks = -(-shape.group // size)
    kv_head = lax.div(program, chunks)
    local = lax.rem(program, chunks) * size + jnp.arange(size, dtype=jnp.int32)
    position = decodes.context_len[row] - 1
    return Rows(
        seq=decodes.seq[row],
        kv_head=kv_head,
        first=position,
        last=position,
        position=position[None],
        token=decodes.token[row][None],
        head=kv_head * shape.group + local,
        exists=local < shape.group,
    )
