"""Merges the splits of each decode row and writes the result to its token's place.

This is one kernel where XLA would make several. It reads only the splits with work, adds the sink,
and writes into prefill's output. Without prefill it writes a new output, with zeros for tokens
without a decode row.
"""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from pallas_kernels.gpu_metadata import GpuMetadata
from pallas_kernels.triton.decode import Partials
from pallas_kernels.triton.dialect import (
    launch,
    load,
    next_power_of_two,
    program_id,
    shape_of,
    when,
)
from pallas_kernels.triton.heads import Parts, read_heads, write_heads
from pallas_kernels.triton.operands import Geometry, Operands
from pallas_kernels.triton.softmax import LN2, LOG2E
from pallas_kernels.triton.splits import split_steps

# Floats of partial outputs that a warp holds in registers.
FLOATS_PER_WARP = 2048


class Result(NamedTuple):
    """What a call returns; `lse` is None unless the call asks for it."""

    out: Float[Array, "T H D"]
    lse: Float[Array, "T H"] | None


class Items(NamedTuple):
    """Items for the programs: decode rows, or all tokens if the output is new.

    Attributes:
        other: for rows, the token of each; for tokens, the row of each, or -1 for none.
        context_len: context length of each row.
    """

    other: Int[Array, " I"]
    context_len: Int[Array, " R"]


def merge_rows(
    operands: Operands,
    shape: Geometry,
    metadata: GpuMetadata,
    partials: Partials,
    rest: Result | None,
    *,
    block_kv: int,
    interpret: bool,
) -> Result:
    """Writes the decode rows' results into `rest`, or, if it is None, into an output of zeros."""
    tokens, heads, dim = operands.q.shape
    other = metadata.token_row if rest is None else metadata.row_token
    result = Result(shape_of((tokens, heads, dim), operands.q.dtype), None)
    if shape.options.return_lse:
        result = result._replace(lse=shape_of((tokens, heads), jnp.float32))
    floats = next_power_of_two(partials.lse.shape[2]) * next_power_of_two(dim)
    merged: Result = launch(
        partial(_program, shape=shape, block_kv=block_kv),
        (rest, operands, partials, Items(other, metadata.row_context_len)),
        result,
        name="paged_merge",
        grid=(len(other), heads),
        num_warps=min(max(floats // FLOATS_PER_WARP, 1), 8),
        num_stages=1,
        interpret=interpret,
        in_place=True,
    )
    return merged


def _program(
    rest: Result | None,
    operands: Operands,
    partials: Partials,
    items: Items,
    result: Result,
    *,
    shape: Geometry,
    block_kv: int,
) -> None:
    item, head = program_id(0), program_id(1)
    other = items.other[item]
    # With a rest, tokens without a row already have their results in it.
    row, token = (other, item) if rest is None else (item, other)
    context_len = jnp.where(row < 0, 0, items.context_len[jnp.maximum(row, 0)])

    @when((context_len > 0) | (rest is None))
    def _() -> None:
        sink = jnp.float32(-jnp.inf)
        if operands.sinks is not None:
            sink = jnp.where(context_len > 0, operands.sinks[head] * LOG2E, sink)
        out, lse = _merge(partials, row, head, context_len, sink, shape, block_kv)
        write_heads(result.out, _index(token, head), shape.dim, None, out)
        if result.lse is not None:
            result.lse[token, head] = lse * LN2


def _merge(
    partials: Partials,
    row: Array,
    head: Array,
    context_len: Array,
    sink: Float[Array, ""],
    shape: Geometry,
    block_kv: int,
) -> tuple[Parts, Float[Array, ""]]:
    """Merges the splits of one row and head, and a sink: output [1, part], log2 of the sum."""
    splits = partials.lse.shape[2]
    first, end, each = split_steps(context_len, shape.options.window, block_kv, splits)
    split = jnp.arange(next_power_of_two(splits), dtype=jnp.int32)
    exists = split < lax.div(end - first + each - 1, each)
    lse = load(partials.lse.at[row, head, split], mask=exists, other=-jnp.inf)
    top = jnp.maximum(lse.max(), sink)
    # -inf minus -inf is NaN, so shift by zero if no split has work.
    shift = jnp.where(top == -jnp.inf, 0.0, top)
    weight = jnp.exp2(lse - shift)
    total = weight.sum() + jnp.exp2(sink - shift)
    share = (weight / jnp.where(total == 0, 1.0, total))[:, None]
    parts = read_heads(partials.out, _index(row, head, split), shape.dim, exists[:, None])
    return tuple((share * part).sum(0)[None, :] for part in parts), shift + jnp.log2(total)


def _index(*axes: Array) -> tuple[Array, ...]:
    """Broadcasts scalars and vectors to columns of one length."""
    length = max(x.size for x in axes)
    return tuple(jnp.broadcast_to(x, (length,))[:, None] for x in axes)
