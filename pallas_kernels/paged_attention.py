"""PagedAttention (SOSP'23 section 4.1) for a ragged batch: the public operation."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pallas_kernels.backends import resolve_backend
from pallas_kernels.metadata import AttentionMetadata, make_metadata
from pallas_kernels.xla.attention import attend
from pallas_kernels.xla.blocks import Options


def paged_attention(
    q: Float[Array, "T H D"],
    kv_cache: Float[Array, "L 2 N K B D"],
    block_tables: Int[Array, "S W"],
    context_lens: Int[Array, " S"],
    query_start_loc: Int[Array, " S+1"],
    *,
    layer: int | Int[Array, ""],
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
    alibi_slopes: Float[Array, " H"] | None = None,
    backend: str | None = None,
    metadata: AttentionMetadata | None = None,
) -> Float[Array, "T H D"]:
    """Causal attention of each sequence's new tokens over its paged context.

    The tokens of sequence i are `query_start_loc[i]:query_start_loc[i+1]`; they are the last of
    its `context_lens[i]` tokens, and their keys and values are in the cache already. The token
    at position p attends to the positions j <= p (with a window: p - window < j <= p), which lie
    in block `block_tables[i, j // B]`, slot `j % B`. A score is `scale * q.k`, then
    `soft_cap * tanh(score / soft_cap)`, then plus `slope * (j - p)`.

    Slots that no token attends to are never part of the result, whatever they hold, and table
    entries past the context are never followed. Unused sequences stand at the end, with context
    length 0 and no tokens. Accumulates in float32. The work is proportional to the contexts, not
    to W.

    Args:
        q: queries; H is a multiple of K.
        kv_cache: the cache; read, never copied.
        block_tables: physical blocks of each sequence.
        context_lens: tokens of each sequence, this step's included.
        query_start_loc: boundaries of the sequences' query tokens, ascending, from 0.
        layer: layer of the cache; may be traced.
        scale: factor of the scores, usually D ** -0.5.
        window: number of tokens each token sees, itself included; None sees all.
        soft_cap: bound of the scores' magnitude; None has none.
        alibi_slopes: one slope a head; None has none.
        backend: "xla", or None for the best there is.
        metadata: from `make_metadata`, to share between layers; made here when None.

    Returns:
        One vector a token and head, in q's dtype; zeros for tokens past `query_start_loc[S]`.

    Raises:
        ValueError: shapes or options that do not fit, or an unknown backend.
    """
    resolve_backend(backend)
    _check_shapes(q, kv_cache, block_tables, context_lens, query_start_loc)
    if window is not None and window < 1:
        raise ValueError(f"{window=} must be at least 1, or None to see the whole context")
    if soft_cap is not None and soft_cap <= 0:
        raise ValueError(f"{soft_cap=} must be positive, or None for no bound")
    if alibi_slopes is not None and alibi_slopes.shape != (q.shape[1],):
        raise ValueError(f"expected one slope a query head: {alibi_slopes.shape=} {q.shape=}")
    if metadata is None:
        metadata = make_metadata(block_tables, context_lens, query_start_loc, q.shape[0])
    elif (metadata.token_row.shape, metadata.seq_tiles.shape) != (
        q.shape[:1],
        query_start_loc.shape,
    ):
        raise ValueError(
            f"metadata of another step: {metadata.token_row.shape=} {metadata.seq_tiles.shape=} "
            f"{q.shape=} {query_start_loc.shape=}"
        )
    out: Array = attend(
        q,
        kv_cache,
        block_tables,
        context_lens,
        query_start_loc,
        jnp.asarray(layer, jnp.int32),
        alibi_slopes,
        metadata,
        options=Options(scale, window, soft_cap),
    )
    return out


def _check_shapes(
    q: Array, kv_cache: Array, block_tables: Array, context_lens: Array, query_start_loc: Array
) -> None:
    if q.ndim != 3 or 0 in q.shape:
        raise ValueError(f"expected queries [T, H, D], none of them 0: {q.shape=}")
    if kv_cache.ndim != 6 or kv_cache.shape[1] != 2 or 0 in kv_cache.shape:
        raise ValueError(f"expected a cache [L, 2, N, K, B, D]: {kv_cache.shape=}")
    if q.shape[2] != kv_cache.shape[5]:
        raise ValueError(f"head dimensions differ: {q.shape=} {kv_cache.shape=}")
    if q.shape[1] % kv_cache.shape[3]:
        raise ValueError(
            f"the number of query heads H must be a multiple of the KV heads K: {q.shape=} "
            f"{kv_cache.shape=}"
        )
    if context_lens.ndim != 1 or context_lens.shape[0] == 0:
        raise ValueError(f"expected at least one sequence: {context_lens.shape=}")
    num_seqs = context_lens.shape[0]
    if block_tables.ndim != 2 or block_tables.shape[0] != num_seqs or block_tables.shape[1] == 0:
        raise ValueError(f"expected [S, W] for [S]: {block_tables.shape=} {context_lens.shape=}")
    if query_start_loc.shape != (num_seqs + 1,):
        raise ValueError(f"expected [S+1] for [S]: {query_start_loc.shape=} {context_lens.shape=}")
    for name, array in (
        ("block_tables", block_tables),
        ("context_lens", context_lens),
        ("query_start_loc", query_start_loc),
    ):
        if not jnp.issubdtype(array.dtype, jnp.integer):
            raise ValueError(f"{name} must hold integers, not {array.dtype}")
