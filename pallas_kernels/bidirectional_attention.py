"""Attention without a cache, for encoders: each token attends to its whole sequence."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from pallas_kernels.backends import Backend, numba_or_xla

# Queries of a tile, and keys in a chunk, of XLA's twin.
QUERIES, KEYS = 64, 128
MASKED = -1e30


def bidirectional_attention(
    qkv: Float[Array, "T heads D"],
    query_start_loc: Int[Array, " starts"],
    *,
    num_heads: int,
    scale: float,
    window: int | Int[Array, ""] | None = None,
    backend: Backend = None,
) -> Float[Array, "T H D"]:
    """Attention of each token of a ragged batch to all tokens of its own sequence.

    Sequence s owns the tokens `query_start_loc[s]:query_start_loc[s + 1]`. Tokens behind the last
    sequence get finite numbers that mean nothing.

    Args:
        qkv: H query heads of each token, then K key heads, then K heads of values.
        num_heads: H, a multiple of K.
        scale: factor of q.k.
        window: a token at position i sees position j if |i - j| < window; None: all.
        backend: "numba" on a CPU, "xla", or None for the better one.

    Returns:
        The result in the dtype of `qkv`. It is computed in float32.

    Raises:
        ValueError: the shapes do not match, the window is below 1, or the backend lacks this.
    """
    _check(qkv, query_start_loc, num_heads, window)
    if numba_or_xla(backend, qkv.dtype) == "numba" and _is_compiled(backend):
        from cpu_kernels.attention.bidirectional_attention import attention

        wide = qkv.astype(jnp.float32)
        near = 0 if window is None else window
        out = attention(wide, query_start_loc, num_heads=num_heads, scale=scale, window=near)
    else:
        near = len(qkv) if window is None else window
        out = _attend(qkv, query_start_loc, near, num_heads=num_heads, scale=scale)
    return out.astype(qkv.dtype)


def _is_compiled(backend: Backend) -> bool:
    """Compiles the CPU's kernel at its first use. Raises ValueError if it is asked for by name."""
    from cpu_kernels.compiling.availability import failure_on_demand

    failure = failure_on_demand("encoders")
    if failure is not None and backend == "numba":
        raise ValueError(f"{backend=} lacks kernels that can be compiled here ({failure})")
    return failure is None


def _check(qkv: Array, query_start_loc: Array, num_heads: int, window: int | Array | None) -> None:
    if qkv.ndim != 3 or 0 in qkv.shape:
        raise ValueError(f"expected queries, keys and values [T, H + 2 K, D]: {qkv.shape=}")
    others = qkv.shape[1] - num_heads
    if num_heads < 1 or others < 2 or others % 2 or num_heads % (others // 2):
        raise ValueError(
            f"expected H query heads, and K heads of keys and of values, H a multiple of K: "
            f"{num_heads=} {qkv.shape=}"
        )
    if query_start_loc.ndim != 1 or len(query_start_loc) < 2:
        raise ValueError(f"expected [S+1] for at least one sequence: {query_start_loc.shape=}")
    if isinstance(window, int) and window < 1:
        raise ValueError(f"{window=} must be at least 1, or None to see everything")


@partial(jax.jit, static_argnames=("num_heads", "scale"))
def _attend(
    qkv: Float[Array, "T heads D"],
    query_start_loc: Int[Array, " starts"],
    window: int | Int[Array, ""],
    *,
    num_heads: int,
    scale: float,
) -> Float[Array, "T H D"]:
    """All tiles at once, chunk by chunk of their sequences' keys (online softmax)."""
    tokens, heads, dim = qkv.shape
    kv_heads = (heads - num_heads) // 2
    lengths = jnp.diff(query_start_loc)
    ends = jnp.cumsum(-(-lengths // QUERIES))
    tiles = jnp.arange(tokens // QUERIES + len(lengths), dtype=jnp.int32)
    seq = jnp.searchsorted(ends, tiles, side="right").clip(max=len(lengths) - 1)
    length, begin = lengths[seq][:, None], query_start_loc[seq][:, None]
    first = (tiles - ends[seq] + -(-lengths[seq] // QUERIES)) * QUERIES
    position = first[:, None] + jnp.arange(QUERIES)
    is_real = (tiles < ends[-1])[:, None] & (position < length)
    queries = qkv.at[begin + position, :num_heads].get(mode="clip").astype(jnp.float32) * scale
    queries = queries.reshape(*position.shape, kv_heads, -1, dim)

    def add(chunk: Array, carried: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        top, total, sums = carried
        place = chunk * KEYS + jnp.arange(KEYS)
        found = qkv.at[begin + place, num_heads:].get(mode="clip").astype(jnp.float32)
        keys, values = jnp.split(found, 2, axis=2)
        scores = jnp.einsum("nqkgd,nckd->nkgqc", queries, keys)
        is_seen = (place < length)[:, None] & (abs(position[:, :, None] - place) < window)
        is_seen = is_seen[:, None, None]
        scores = jnp.where(is_seen, scores, MASKED)
        new = jnp.maximum(top, scores.max(-1))
        weights = jnp.where(is_seen, jnp.exp(scores - new[..., None]), 0.0)
        shrink = jnp.exp(top - new)
        # What no query sees may be another sequence's, and NaN.
        values = jnp.where((place < length)[..., None, None], values, 0.0)
        added = jnp.einsum("nkgqc,nckd->nkgqd", weights, values)
        return new, total * shrink + weights.sum(-1), sums * shrink[..., None] + added

    sums = jnp.zeros((len(tiles), kv_heads, num_heads // kv_heads, QUERIES, dim), jnp.float32)
    top = jnp.full(sums.shape[:-1], MASKED)
    chunks = -(-lengths.max() // KEYS)
    _, total, sums = lax.fori_loop(0, chunks, add, (top, jnp.zeros_like(top), sums))
    out = sums / jnp.where(total == 0, 1.0, total)[..., None]
    out = jnp.moveaxis(out, 3, 1).reshape(*position.shape, num_heads, dim)
    place = jnp.where(is_real, begin + position, tokens)
    return jnp.zeros((tokens, num_heads, dim), jnp.float32).at[place].set(out, mode="drop")
