"""Ragged batches over a paged cache, drawn by Hypothesis, in few array shapes.

A compiled function is kept for each shape, so shapes come from short lists, and what is drawn
(lengths, block tables, content) varies within them.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

import pallas_kernels
import reference.attention
from pallas_kernels.xla.metadata import tile_queries

TOKENS, SEQS, CONTEXT = 192, 12, 320
SCALE = 0.4
# Two of everything that matters: B below and above a query, K, heads a group, D.
GEOMETRIES = ((4, 2, 2, 8), (16, 1, 3, 16))
PLAIN: dict[str, Any] = {"window": None, "soft_cap": None}
OPTIONS = (PLAIN, {"window": 5, "soft_cap": None}, {"window": 140, "soft_cap": 1.5})


@dataclass(frozen=True)
class Case:
    """One step: the arguments of `paged_attention`, as NumPy arrays."""

    q: np.ndarray
    kv_cache: np.ndarray
    block_tables: np.ndarray
    context_lens: np.ndarray
    query_start_loc: np.ndarray
    layer: int = 1

    @property
    def block_size(self) -> int:
        return int(self.kv_cache.shape[4])

    @property
    def num_tokens(self) -> int:
        """Tokens that are not padding."""
        return int(self.query_start_loc[-1])

    @property
    def query_lens(self) -> np.ndarray:
        return np.diff(self.query_start_loc)

    def with_cache(self, kv_cache: np.ndarray) -> "Case":
        return replace(self, kv_cache=kv_cache)


def make_case(
    lengths: list[tuple[int, int]],
    seed: int,
    geometry: tuple[int, int, int, int] = GEOMETRIES[0],
    tokens: int = TOKENS,
) -> Case:
    """A step of sequences with the given numbers of (query tokens, earlier tokens)."""
    block_size, kv_heads, group, dim = geometry
    rng = np.random.default_rng(seed)
    width = -(-CONTEXT // block_size)
    needed = [-(-(new + old) // block_size) for new, old in lengths]
    blocks = SEQS * width + 2
    order = rng.permutation(blocks).astype(np.int32)
    tables = np.zeros((SEQS, width), np.int32)
    for i, count in enumerate(needed):
        tables[i, :count], order = order[:count], order[count:]
    lens = np.zeros((SEQS, 2), np.int32)
    lens[: len(lengths)] = np.array(lengths, np.int32).reshape(-1, 2)
    return Case(
        q=rng.standard_normal((tokens, kv_heads * group, dim), np.float32),
        kv_cache=rng.standard_normal((2, 2, blocks, kv_heads, block_size, dim), np.float32),
        block_tables=tables,
        context_lens=lens.sum(1, dtype=np.int32),
        query_start_loc=np.concatenate([[0], lens[:, 0].cumsum()]).astype(np.int32),
    )


@st.composite
def lengths_of_steps(draw: st.DrawFn, decode_only: bool = False) -> list[tuple[int, int]]:
    """(query tokens, earlier tokens) of each sequence; they fit TOKENS, SEQS and CONTEXT."""
    new = st.just(1)
    if not decode_only:
        # One token, a few, about one tile of queries, and anything.
        tile = tile_queries(TOKENS)
        new = st.one_of(
            new, st.integers(1, 4), st.integers(tile - 2, tile + 2), st.integers(1, 150)
        )
    lengths: list[tuple[int, int]] = []
    left = TOKENS
    for _ in range(draw(st.integers(1, SEQS))):
        count = min(draw(new), left)
        if count == 0:
            break
        old = draw(st.one_of(st.integers(0, 20), st.integers(0, CONTEXT - count)))
        lengths.append((count, old))
        left -= count
    return lengths


@st.composite
def cases(draw: st.DrawFn, decode_only: bool = False) -> Case:
    """Steps with decodes, prefill chunks, or both, in any order."""
    return make_case(
        draw(lengths_of_steps(decode_only)),
        draw(st.integers(0, 2**32 - 1)),
        draw(st.sampled_from(GEOMETRIES)),
        SEQS if decode_only else TOKENS,
    )


@partial(jax.jit, static_argnames=("window", "soft_cap", "decode_only"))
def _attend(
    case: tuple[jax.Array, ...],
    layer: jax.Array,
    slopes: jax.Array | None,
    *,
    window: int | None,
    soft_cap: float | None,
    decode_only: bool,
) -> jax.Array:
    q, _, tables, lens, starts = case
    metadata = pallas_kernels.make_metadata(
        tables, lens, starts, q.shape[0], decode_only=decode_only
    )
    return pallas_kernels.paged_attention(
        *case,
        layer=layer,
        scale=SCALE,
        window=window,
        soft_cap=soft_cap,
        alibi_slopes=slopes,
        metadata=metadata,
    )


def attend(
    case: Case,
    *,
    window: int | None = None,
    soft_cap: float | None = None,
    slopes: np.ndarray | None = None,
    dtype: Any = jnp.float32,
    decode_only: bool = False,
) -> np.ndarray:
    """The kernel's result in float32; the layer is traced."""
    arrays = (
        jnp.asarray(case.q, dtype),
        jnp.asarray(case.kv_cache, dtype),
        jnp.asarray(case.block_tables),
        jnp.asarray(case.context_lens),
        jnp.asarray(case.query_start_loc),
    )
    out = _attend(
        arrays,
        jnp.int32(case.layer),
        None if slopes is None else jnp.asarray(slopes),
        window=window,
        soft_cap=soft_cap,
        decode_only=decode_only,
    )
    assert out.dtype == dtype
    return np.asarray(out.astype(jnp.float32))


def oracle(case: Case, *, slopes: np.ndarray | None = None, **options: Any) -> np.ndarray:
    """The reference's result."""
    return reference.attention.paged_attention(
        case.q,
        case.kv_cache,
        case.block_tables,
        case.context_lens,
        case.query_start_loc,
        layer=case.layer,
        scale=SCALE,
        alibi_slopes=slopes,
        **options,
    )


def visible(case: Case, window: int | None = None) -> np.ndarray:
    """[N, B]: which slots some query of the step may read."""
    slots = np.zeros((case.kv_cache.shape[2], case.block_size), bool)
    for table, length, new in zip(
        case.block_tables, case.context_lens, case.query_lens, strict=True
    ):
        first = 0 if window is None else max(0, length - new - window + 1)
        position = np.arange(first, length)
        slots[table[position // case.block_size], position % case.block_size] = True
    return slots
