"""Attention of a ragged batch: prefill in tiles, decode rows in splits, and their merge."""

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import cast

import jax
from jaxtyping import Array, Float, Int

from pallas_kernels.call import Call, Options
from pallas_kernels.device import interpreting, target_device, wave_size
from pallas_kernels.gpu_metadata import GpuMetadata, make_gpu_metadata
from pallas_kernels.triton.decode import attend_rows, programs_per_row
from pallas_kernels.triton.merge import Result, merge_rows
from pallas_kernels.triton.operands import compute_dtype, geometry, operands
from pallas_kernels.triton.prefill import attend_tiles
from pallas_kernels.triton.splits import FIXED_SPLITS, num_splits
from pallas_kernels.tuning import TritonDecodeConfig, TritonPrefillConfig, lookup

# Most and fewest queries in one tile; the fewest are as many rows as a tensor core takes.
MOST_QUERIES = 64
LEAST_QUERIES = 16
# SMs of an A100, assumed when the device does not report its number of SMs.
USUAL_SMS = 108
# Most decode rows of a piece beside prompts, if there may be as many rows as tokens.
MOST_ROWS = 256
DTYPES = ("float32", "bfloat16", "float16", "float8_e4m3fn", "int8")


def make_metadata(
    context_lens: Int[Array, " S"],
    query_start_loc: Int[Array, " S+1"],
    num_tokens: int,
    *,
    decode_only: bool,
    prompt_lens: Int[Array, " S"] | None = None,
    batch_invariant: bool = False,
) -> GpuMetadata:
    """The work of one step; see `pallas_kernels.make_metadata`."""
    size = MOST_QUERIES if batch_invariant else tile_queries(num_tokens, len(context_lens))
    return make_gpu_metadata(
        context_lens,
        query_start_loc,
        num_tokens,
        tile_queries=size,
        decode_only=decode_only,
        prompt_lens=prompt_lens,
        batch_invariant=batch_invariant,
    )


def tile_queries(num_tokens: int, num_seqs: int) -> int:
    """Queries in one tile, a power of two: smaller if the sequences of a step have few each."""
    each = max(num_tokens // num_seqs, 1)
    return min(max(1 << (each.bit_length() - 1), LEAST_QUERIES), MOST_QUERIES)


def missing(call: Call, options: Options) -> str | None:
    """Why this backend does not support a call, or None if it does."""
    del options
    if call.window is not None:
        return "a window that is an array"
    if call.kv_cache.shape[1] == 1:
        return "a cache whose values are its keys"
    kv_cache = call.kv_cache
    for array in (call.q, kv_cache):
        if array.dtype.name not in DTYPES:
            return f"{array.dtype}"
    # Tensor cores do not multiply float32, and operands that must first be widened to float32 do
    # not fit into the registers.
    if compute_dtype(call).itemsize == 4 and kv_cache.dtype.itemsize < 4:
        return f"{call.q.dtype} queries on a cache of {kv_cache.dtype}"
    # JAX computes offsets as int32 for arrays of up to 4 GiB.
    if kv_cache.dtype.itemsize == 1 and 2**31 < kv_cache.size <= 2**32:
        return f"a cache of one byte an element and 2 to 4 GiB (this one has {kv_cache.size} bytes)"
    return None


@partial(jax.jit, static_argnames="options")
def attend(
    call: Call, options: Options, metadata: GpuMetadata
) -> tuple[Float[Array, "T H D"], Float[Array, "T H"] | None]:
    """`paged_attention` on checked arguments."""
    arrays, shape = operands(call), geometry(call, options)
    interpret = interpreting()
    device = target_device()
    key = (device.device_kind, shape.dim, shape.block_size, call.kv_cache.dtype, wave_size())
    decode = cast(TritonDecodeConfig, lookup("triton_decode", *key))
    prefill = cast(TritonPrefillConfig, lookup("triton_prefill", *key))

    rest: Result | None = None
    if not metadata.decode_only:
        batch = (call.context_lens, call.query_start_loc)
        rest = attend_tiles(arrays, shape, metadata, *batch, config=prefill, interpret=interpret)
    for rows in _pieces(metadata):
        wanted = decode.splits or num_splits(
            programs_per_row(shape) * len(rows.row_seq),
            call.block_tables.shape[1] * shape.block_size,
            decode.block_kv,
            getattr(device, "core_count", USUAL_SMS),
        )
        # What programs there are follows from the step, but not what is added in which order.
        splits = FIXED_SPLITS if rows.batch_invariant else wanted
        partials = attend_rows(
            arrays,
            shape,
            rows,
            config=decode,
            splits=splits,
            programs=min(wanted, splits),
            interpret=interpret,
        )
        rest = merge_rows(
            arrays, shape, rows, partials, rest, block_kv=decode.block_kv, interpret=interpret
        )
    assert rest is not None
    return rest


def _pieces(metadata: GpuMetadata) -> Iterator[GpuMetadata]:
    """The decode rows, in pieces whose partial sums fit into memory.

    Every token of a step may be a row if prompts say where decodes begin. Beside prompts most are
    not, and the pieces behind the last row end at once.
    """
    rows = len(metadata.row_seq)
    size = rows if metadata.decode_only or not metadata.batch_invariant else MOST_ROWS
    for begin in range(0, rows, size):
        piece = slice(begin, begin + size)
        yield dataclasses.replace(
            metadata,
            row_seq=metadata.row_seq[piece],
            row_token=metadata.row_token[piece],
            row_context_len=metadata.row_context_len[piece],
        )
