"""The code that decode and prefill share: reading chunks of the paged context, and scores."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from pallas_kernels.call import Call, Options

# Stands for minus infinity, but is finite, so that the difference of two is not NaN.
MASKED = -1e30

# Attention over some keys, and its log-sum-exp or None.
Partial = tuple[Array, Array | None]


def chunk_blocks(tokens: int, block_size: int) -> int:
    """Blocks that hold a chunk of at least `tokens` tokens."""
    return -(-tokens // block_size)


def read_chunk(
    call: Call,
    seq: Int[Array, " P"],
    first_block: Int[Array, " P"],
    low: Int[Array, " P"] | None,
    high: Int[Array, " P"],
    blocks: int,
) -> tuple[Float[Array, "P K C D"], Float[Array, "P K C D"]]:
    """Keys and values of `blocks` blocks of P contexts, in float32; C = blocks * B tokens.

    Args:
        call: the call, with the cache and the block tables.
        seq: sequence of each context.
        first_block: index of each context's first block in its block table.
        low: first position to read in each context; None reads from 0.
        high: last position to read in each context, plus 1.
        blocks: number of blocks of each context.

    Returns:
        Keys and values. Outside of low:high keys are arbitrary and values are zeros, since a
        probability of zero would not hide a NaN.
    """
    layers, kv, num_blocks, heads, block_size, dim = call.kv_cache.shape
    column = first_block[:, None] + jnp.arange(blocks, dtype=jnp.int32)
    slots = column * block_size
    # Without a window the lower bound is a constant, and the compiler drops the comparison.
    begin = jnp.zeros_like(slots)
    if low is not None:
        begin = jnp.clip(low[:, None] - slots, 0, block_size)
    end = jnp.clip(high[:, None] - slots, 0, block_size)
    width = call.block_tables.shape[1]
    entry = call.block_tables[seq[:, None], jnp.minimum(column, width - 1)]
    block = jnp.where(begin < end, entry, 0)

    # One row of the flat view is one block of one head. So the gather copies long runs, and its
    # results are [P, K, C, D] without a transpose.
    flat = call.kv_cache.reshape(layers * kv * num_blocks * heads, block_size * dim)
    head = jnp.arange(heads, dtype=jnp.int32)[:, None]

    def gather(place: int) -> Array:
        rows = ((call.layer * kv + place) * num_blocks + block)[:, None] * heads + head
        found = flat.at[rows.reshape(-1)].get(mode="promise_in_bounds", wrap_negative_indices=False)
        return found.astype(jnp.float32)

    def per_row(x: Array) -> Array:
        return jnp.broadcast_to(x[:, None] * dim, (len(x), heads, blocks)).reshape(-1, 1)

    element = jnp.arange(block_size * dim, dtype=jnp.int32)
    keys, values = map(gather, call.places)
    values = jnp.where((element >= per_row(begin)) & (element < per_row(end)), values, 0.0)
    # The barrier keeps XLA from fusing the reshape: with an inner loop of D instead of B * D
    # elements LLVM does not vectorise the copy, which then takes twice as long.
    both = lax.optimization_barrier((keys, values))  # type: ignore[no-untyped-call]
    keys, values = (x.reshape(-1, heads, blocks * block_size, dim) for x in both)
    return keys, values


def adjust_scores(
    scores: Float[Array, "..."],
    mask: Bool[Array, "..."],
    bias: Float[Array, "..."] | None,
    options: Options,
) -> Float[Array, "..."]:
    """Applies soft cap, bias and mask to scaled scores."""
    if options.soft_cap is not None:
        scores = options.soft_cap * jnp.tanh(scores / options.soft_cap)
    if bias is not None:
        scores = scores + bias
    return jnp.where(mask, scores, MASKED)


def scale_heads(x: Float[Array, "P H D"], call: Call, which: int) -> Float[Array, "P H D"]:
    """Multiplies queries (`which` 0) or results (1) by the scales of a quantised cache, if any.

    All terms of a sum have the same scale. So the scale is applied outside of the sum, and the
    loops work on the stored numbers.
    """
    if call.kv_scales is None:
        return x
    scales = call.kv_scales[call.layer, call.places[which]]
    return x * jnp.repeat(scales, x.shape[1] // len(scales))[:, None]


def finish(
    out: Float[Array, "P Q D"],
    top: Float[Array, "P Q"],
    denominator: Float[Array, "P Q"],
    sinks: Float[Array, "#P Q"] | None,
    return_lse: bool,
) -> Partial:
    """The attention, and the log-sum-exp if `return_lse`, from sums scaled by exp(-top).

    A query without keys, whose denominator is 0, gets zeros and -inf, with or without a sink.
    """
    empty = denominator == 0
    if sinks is not None:
        new_top = jnp.maximum(top, sinks)
        keep = jnp.exp(top - new_top)
        out, top = out * keep[..., None], new_top
        denominator = jnp.where(empty, 0.0, denominator * keep + jnp.exp(sinks - new_top))
    total = jnp.where(empty, 1.0, denominator)
    lse = jnp.where(empty, -jnp.inf, top + jnp.log(total)) if return_lse else None
    return out / total[..., None], lse
