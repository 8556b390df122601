"""Attention of a ragged batch: decode rows in splits, prefill in tiles, and their merge."""

from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pallas_kernels.call import Call, Options
from pallas_kernels.device import interpreting, target_device
from pallas_kernels.gpu_metadata import GpuMetadata
from pallas_kernels.merge import merge_partials
from pallas_kernels.mosaic import decode, plgpu, prefill
from pallas_kernels.mosaic.metadata import MosaicMetadata
from pallas_kernels.mosaic.metadata import make_metadata as make_metadata
from pallas_kernels.mosaic.pages import Paging
from pallas_kernels.mosaic.prefill_plan import ROWS, Prefill
from pallas_kernels.tuning import MosaicDecodeConfig, MosaicPrefillConfig, lookup

Result = tuple[Float[Array, "N H D"], Float[Array, "N H"]]

# SMs of an H200, assumed when the device does not report its number of SMs.
USUAL_SMS = 132
DTYPES = ("bfloat16", "float16")
LARGEST_HEAD = 256


def missing(call: Call, options: Options) -> str | None:
    """Why this backend does not support a call, or None if it does."""
    del options
    if call.window is not None:
        return "a window that is an array"
    if call.kv_cache.shape[1] == 1:
        return "a cache whose values are its keys"
    block_size, dim = call.kv_cache.shape[4:]
    group = call.q.shape[1] // call.kv_cache.shape[3]
    if call.kv_cache.dtype.name not in DTYPES:
        return f"a cache of {call.kv_cache.dtype} (it has {' and '.join(DTYPES)})"
    if call.q.dtype != call.kv_cache.dtype:
        return f"queries of {call.q.dtype} with a cache of {call.kv_cache.dtype}"
    if dim > LARGEST_HEAD or not plgpu.swizzle_bytes(2 * dim):
        return f"head dimension {dim} (a multiple of 16 up to {LARGEST_HEAD} is needed)"
    if block_size % 8:
        return f"block size {block_size} (a multiple of 8 is needed)"
    if group > decode.ROWS:
        return f"{group} query heads a KV head (at most {decode.ROWS})"
    return None


@partial(jax.jit, static_argnames="options")
def attend(
    call: Call, options: Options, metadata: MosaicMetadata
) -> tuple[Float[Array, "T H D"], Float[Array, "T H"] | None]:
    """`paged_attention` on checked arguments."""
    out, lse = _attend_rows(call, options, metadata.work)
    row = metadata.work.token_row
    in_row, row = row >= 0, jnp.maximum(row, 0)
    rest, rest_lse = jnp.zeros_like(call.q), jnp.float32(-jnp.inf)
    if not metadata.work.decode_only:
        rest, rest_lse = _attend_tiles(call, options, metadata)
    out = jnp.where(in_row[:, None, None], out[row].astype(rest.dtype), rest)
    return out, jnp.where(in_row[:, None], lse[row], rest_lse) if options.return_lse else None


def _attend_rows(call: Call, options: Options, metadata: GpuMetadata) -> Result:
    """Attention of all decode rows, in float32; zeros and -inf for rows beyond the last."""
    config = cast(MosaicDecodeConfig, lookup("mosaic_decode", *_key(call)))
    heads = call.q.shape[1] // call.kv_cache.shape[3]
    padding = -heads % 8
    q = call.q[metadata.row_token].reshape(len(metadata.row_token), -1, heads, call.q.shape[2])
    q = jnp.pad(q, ((0, 0), (0, 0), (0, padding), (0, 0)))
    kernel = decode.Decode(
        paging=_paging(call, config.block_kv),
        options=options,
        stages=config.stages,
        splits=config.splits or _num_splits(call, len(q)),
        heads=heads + padding,
        has_slopes=call.alibi_slopes is not None,
        has_sinks=call.sinks is not None,
        interpret=interpreting(),
    )
    out, lse = decode.attend_rows(
        q,
        _pages(call),
        call.block_tables,
        metadata.row_seq,
        metadata.row_context_len,
        call.layer[None],
        _per_row(call.alibi_slopes, call, decode.ROWS),
        _per_row(call.sinks, call, decode.ROWS),
        kernel,
    )
    out, lse = merge_partials(out[..., :heads, :], lse[..., :heads])
    return out.reshape(len(q), *call.q.shape[1:]), lse.reshape(len(q), -1)


def _attend_tiles(call: Call, options: Options, metadata: MosaicMetadata) -> Result:
    """Attention of the sequences with several query tokens; zeros and -inf for padding tokens."""
    config = cast(MosaicPrefillConfig, lookup("mosaic_prefill", *_key(call)))
    tokens, heads, dim = call.q.shape
    kv_heads = call.kv_cache.shape[3]
    kernel = Prefill(
        paging=_paging(call, config.block_kv),
        options=options,
        stages=config.stages,
        warpgroups=config.block_q // ROWS,
        ping_pong=config.ping_pong,
        group=heads // kv_heads,
        tile_queries=metadata.work.tile_queries,
        has_slopes=call.alibi_slopes is not None,
        has_sinks=call.sinks is not None,
        interpret=interpreting(),
    )
    q = call.q[metadata.place_token].reshape(-1, kv_heads, kernel.group, dim).swapaxes(0, 1)
    rows = kernel.parts * kernel.rows
    out, lse = prefill.attend_tiles(
        q.reshape(kv_heads, -1, dim),
        _pages(call),
        call.block_tables,
        call.context_lens,
        call.query_start_loc,
        metadata.seq_place,
        metadata.work.tile_seq,
        metadata.work.tile_start,
        call.layer[None],
        _per_row(call.alibi_slopes, call, rows),
        _per_row(call.sinks, call, rows),
        kernel,
    )
    out = out.reshape(kv_heads, -1, kernel.group, dim)[:, metadata.token_place]
    out = out.swapaxes(0, 1).reshape(tokens, heads, dim)
    exists = jnp.arange(tokens) < call.query_start_loc[-1]
    out = jnp.where(exists[:, None, None], out, 0)
    return out, _scatter_tiles(call, metadata.work, lse)


def _scatter_tiles(
    call: Call, metadata: GpuMetadata, lse: Float[Array, "NT K rows"]
) -> Float[Array, "T H"]:
    """Log-sum-exps by token and head, from those by row of each tile; -inf for other tokens."""
    tokens, heads, _ = call.q.shape
    size, num_seqs = metadata.tile_queries, len(call.context_lens)
    kv_heads = call.kv_cache.shape[3]
    lse = lse[..., : size * heads // kv_heads].reshape(len(lse), kv_heads, size, -1)
    lse = lse.swapaxes(1, 2).reshape(len(lse), size, heads)
    seq = jnp.minimum(metadata.tile_seq, num_seqs - 1)
    token = (call.query_start_loc[seq] + metadata.tile_start)[:, None] + jnp.arange(size)
    exists = (metadata.tile_seq < num_seqs)[:, None]
    exists &= token < call.query_start_loc[seq + 1][:, None]
    place = jnp.where(exists, token, tokens)
    return jnp.full((tokens, heads), -jnp.inf).at[place].set(lse, mode="drop")


def _key(call: Call) -> tuple[str, int, int, jnp.dtype]:
    block_size, dim = call.kv_cache.shape[4:]
    return target_device().device_kind, dim, block_size, call.kv_cache.dtype


def _paging(call: Call, block_kv: int) -> Paging:
    num_blocks, kv_heads, block_size, dim = call.kv_cache.shape[2:]
    return Paging(num_blocks, kv_heads, block_size, dim, block_kv)


def _pages(call: Call) -> Float[Array, "P B D"]:
    """The cache reshaped to pages [L*2*N*K, B, D] of one head each, without a copy."""
    return call.kv_cache.reshape(-1, *call.kv_cache.shape[4:])


def _per_row(values: Float[Array, " H"] | None, call: Call, rows: int) -> Float[Array, "K rows"]:
    """Expands one number per head to one per tile row: row r has head r % G of the KV head's G."""
    kv_heads = call.kv_cache.shape[3]
    if values is None:
        return jnp.zeros((kv_heads, rows), jnp.float32)
    group = values.astype(jnp.float32).reshape(kv_heads, -1)
    return jnp.tile(group, (1, -(-rows // group.shape[1])))[:, :rows]


def _num_splits(call: Call, rows: int) -> int:
    """Splits of each context: four thread blocks per SM, but at least SMALLEST_PART tokens each."""
    kv_heads, block_size = call.kv_cache.shape[3:5]
    wanted = 4 * getattr(target_device(), "core_count", USUAL_SMS)
    most = -(-call.block_tables.shape[1] * block_size // decode.SMALLEST_PART)
    return max(1, min(-(-wanted // (rows * kv_heads)), most))
