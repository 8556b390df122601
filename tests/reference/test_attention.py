"""Attention: each form of the sum equals the one before it (I40-I44, I47)."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.attention import (
    attention_scores,
    causal_attention,
    kv_blocks,
    merge_partials,
    online_attention,
    paged_attention,
    partial_attention,
    softmax_attention,
    split_attention,
)

seeds = st.integers(0, 2**32 - 1)
OPTIONS: list[dict[str, Any]] = [
    {},
    {"window": 3},
    {"soft_cap": 2.0},
    {"alibi_slopes": True},
    {"sinks": True},
    {"sinks": True, "window": 4, "soft_cap": 3.0, "alibi_slopes": True},
]


def dense_attention(
    q, keys, values, *, scale, window=None, soft_cap=None, alibi_slopes=None, sinks=None
):
    """The whole [T, n] matrix of scores of each head under a mask: another way to say it all."""
    num_queries, num_heads, _ = q.shape
    context = len(keys)
    keys = np.repeat(keys, num_heads // keys.shape[1], axis=1)
    values = np.repeat(values, num_heads // values.shape[1], axis=1)
    scores = np.einsum("thd,nhd->htn", q, keys, dtype=np.float64) * scale
    if soft_cap is not None:
        scores = soft_cap * np.tanh(scores / soft_cap)
    ahead = np.arange(context)[None, :] - np.arange(context - num_queries, context)[:, None]
    if alibi_slopes is not None:
        scores = scores + alibi_slopes[:, None, None] * ahead
    hidden = (ahead > 0) | (False if window is None else ahead <= -window)
    weights = np.exp(np.where(hidden, -np.inf, scores))
    total = weights.sum(-1, keepdims=True)
    if sinks is not None:
        total += np.exp(sinks)[:, None, None]
    return np.einsum("htn,nhd->thd", weights / total, values), np.log(total[..., 0].T)


@dataclass
class Ragged:
    """A ragged batch: the keys and values of each sequence side by side, and the same in a pool."""

    q: np.ndarray
    contexts: list[tuple[np.ndarray, np.ndarray]]
    kv_cache: np.ndarray
    block_tables: np.ndarray
    context_lens: np.ndarray
    query_start_loc: np.ndarray
    layer: int

    def paged(self, **options: Any) -> np.ndarray:
        return self.paged_with_lse(**options)[0]

    def paged_with_lse(self, **options: Any) -> tuple[np.ndarray, np.ndarray]:
        return paged_attention(
            self.q,
            self.kv_cache,
            self.block_tables,
            self.context_lens,
            self.query_start_loc,
            layer=self.layer,
            scale=0.5,
            **options,
        )

    def queries(self, s: int) -> np.ndarray:
        return self.q[self.query_start_loc[s] : self.query_start_loc[s + 1]]


def make_ragged(seed: int, *, block_size: int | None = None) -> Ragged:
    """All shapes and numbers out of a seed; the block size changes where things lie, no number."""
    rng = np.random.default_rng(seed)
    num_kv_heads, group, head_dim = rng.integers(1, 4), rng.integers(1, 4), 2 * rng.integers(1, 5)
    lengths = rng.integers(1, 20, size=rng.integers(1, 5))
    query_lens = rng.integers(1, lengths + 1)
    q = rng.standard_normal((query_lens.sum() + 2, group * num_kv_heads, head_dim), np.float32)
    shape = (num_kv_heads, head_dim)
    contexts = [
        (rng.standard_normal((n, *shape), np.float32), rng.standard_normal((n, *shape), np.float32))
        for n in lengths
    ]
    block_size = block_size or int(rng.integers(1, 9))
    width = -(-lengths.max() // block_size) + 1
    num_blocks = len(lengths) * width
    tables = rng.permutation(num_blocks).reshape(len(lengths), width)
    pool = (2, 2, num_blocks, num_kv_heads, block_size, head_dim)
    kv_cache = rng.standard_normal(pool, np.float32)
    for table, (keys, values) in zip(tables, contexts, strict=True):
        for p, (key, value) in enumerate(zip(keys, values, strict=True)):
            block, offset = table[p // block_size], p % block_size
            kv_cache[1, 0, block, :, offset], kv_cache[1, 1, block, :, offset] = key, value
    starts = np.concatenate([[0], np.cumsum(query_lens)])
    return Ragged(q, contexts, kv_cache, tables, lengths, starts, layer=1)


def fill(batch: Ragged, options: dict[str, Any]) -> dict[str, Any]:
    """ALiBi and sinks need one number a head, and only the batch knows how many those are."""
    heads = np.arange(1.0, batch.q.shape[1] + 1)
    per_head = {"alibi_slopes": 0.5**heads, "sinks": np.sin(heads)}
    return options | {name: per_head[name] for name in per_head.keys() & options.keys()}


@given(seed=seeds, cuts=st.lists(st.integers(1, 11), max_size=4, unique=True))
def test_online_softmax_equals_softmax(seed: int, cuts: list[int]) -> None:
    rng = np.random.default_rng(seed)
    scores, values = rng.normal(0, 30, size=12), rng.normal(size=(12, 3))
    blocks = list(zip(np.split(scores, sorted(cuts)), np.split(values, sorted(cuts)), strict=True))
    np.testing.assert_allclose(online_attention(blocks), softmax_attention(scores, values))


@given(seed=seeds)
def test_a_walk_over_the_table_with_online_softmax_equals_eq_3(seed: int) -> None:
    """Eq. 4 as a kernel computes it: block after block, in the order of the table."""
    batch = make_ragged(seed)
    for s, (keys, values) in enumerate(batch.contexts):
        q, scale = batch.queries(s)[-1, 0], 0.5
        blocks = kv_blocks(batch.kv_cache[1], batch.block_tables[s], len(keys))
        walk = ((attention_scores(q, k[:, 0], scale=scale), v[:, 0]) for k, v in blocks)
        whole = softmax_attention(attention_scores(q, keys[:, 0], scale=scale), values[:, 0])
        np.testing.assert_allclose(online_attention(walk), whole, rtol=1e-9, atol=1e-12)


@given(seed=seeds, options=st.sampled_from(OPTIONS))
def test_causal_equals_dense_with_a_mask(seed: int, options: dict[str, Any]) -> None:
    batch = make_ragged(seed)
    options = fill(batch, options)
    for s, (keys, values) in enumerate(batch.contexts):
        mine, lse = causal_attention(batch.queries(s), keys, values, scale=0.5, **options)
        dense, dense_lse = dense_attention(batch.queries(s), keys, values, scale=0.5, **options)
        np.testing.assert_allclose(mine, dense, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(lse, dense_lse, rtol=1e-5, atol=1e-6)


@given(seed=seeds, options=st.sampled_from(OPTIONS))
def test_paged_equals_contiguous(seed: int, options: dict[str, Any]) -> None:
    """Bit by bit; the tokens that belong to no sequence are zeros and have summed up nothing."""
    batch = make_ragged(seed)
    options = fill(batch, options)
    out, lse = batch.paged_with_lse(**options)
    for s, (keys, values) in enumerate(batch.contexts):
        mine = slice(batch.query_start_loc[s], batch.query_start_loc[s + 1])
        alone, alone_lse = causal_attention(batch.queries(s), keys, values, scale=0.5, **options)
        np.testing.assert_array_equal(out[mine], alone)
        np.testing.assert_array_equal(lse[mine], alone_lse)
    assert not out[batch.query_start_loc[-1] :].any()
    assert np.isneginf(lse[batch.query_start_loc[-1] :]).all()


@given(seed=seeds, block_size=st.integers(1, 24))
def test_the_block_size_does_not_matter(seed: int, block_size: int) -> None:
    one, other = make_ragged(seed, block_size=4), make_ragged(seed, block_size=block_size)
    np.testing.assert_array_equal(one.paged(), other.paged())


@given(seed=seeds, options=st.sampled_from(OPTIONS))
def test_i40_any_permutation_of_physical_blocks(seed: int, options: dict[str, Any]) -> None:
    batch = make_ragged(seed)
    options = fill(batch, options)
    new_place = np.random.default_rng(seed + 1).permutation(batch.kv_cache.shape[2])
    moved = np.empty_like(batch.kv_cache)
    moved[:, :, new_place] = batch.kv_cache
    renamed = replace(batch, kv_cache=moved, block_tables=new_place[batch.block_tables])
    np.testing.assert_array_equal(renamed.paged(**options), batch.paged(**options))


@given(seed=seeds, poison=st.sampled_from([np.nan, np.inf, -np.inf]))
def test_i41_unmapped_slots_do_not_matter(seed: int, poison: float) -> None:
    """All that no position of a sequence owns: other layers, other blocks, the ends of last blocks.

    The table entries behind the last position point nowhere.
    """
    batch = make_ragged(seed)
    poisoned = np.full_like(batch.kv_cache, poison)
    tables = np.full_like(batch.block_tables, -1)
    block_size = batch.kv_cache.shape[4]
    for s, length in enumerate(batch.context_lens):
        for p in range(length):
            block = batch.block_tables[s, p // block_size]
            tables[s, p // block_size] = block
            slot = np.s_[1, :, block, :, p % block_size]
            poisoned[slot] = batch.kv_cache[slot]
    clean = replace(batch, kv_cache=poisoned, block_tables=tables).paged()
    np.testing.assert_array_equal(clean, batch.paged())


@given(seed=seeds)
def test_i41_keys_behind_the_window_do_not_matter(seed: int) -> None:
    batch = make_ragged(seed)
    for s, (keys, values) in enumerate(batch.contexts):
        last = batch.queries(s)[-1:]
        expected, _ = causal_attention(last, keys, values, scale=0.5, window=3)
        keys[:-3], values[:-3] = np.nan, np.inf
        out, _ = causal_attention(last, keys, values, scale=0.5, window=3)
        np.testing.assert_array_equal(out, expected)


@given(seed=seeds, num_splits=st.integers(1, 20))
def test_i42_any_number_of_splits(seed: int, num_splits: int) -> None:
    """More splits than keys among them: the empty ones are neutral."""
    rng = np.random.default_rng(seed)
    scores, values = rng.normal(0, 30, size=12), rng.normal(size=(12, 3))
    split = split_attention(scores, values, num_splits)
    np.testing.assert_allclose(split, softmax_attention(scores, values), rtol=1e-9, atol=1e-12)


@given(seed=seeds, sizes=st.lists(st.integers(0, 5), min_size=3, max_size=3))
def test_i42_merge_is_associative_and_commutative(seed: int, sizes: list[int]) -> None:
    rng = np.random.default_rng(seed)
    parts = [partial_attention(rng.normal(0, 9, size=n), rng.normal(size=(n, 2))) for n in sizes]

    def merge(*partials):
        out, lse = zip(*partials, strict=True)
        return merge_partials(np.stack(out), np.array(lse))

    a, b, c = parts
    together = merge(a, b, c)
    for other in (merge(merge(a, b), c), merge(a, merge(b, c)), merge(c, a, b)):
        np.testing.assert_allclose(other[0], together[0], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(other[1], together[1], rtol=1e-9, atol=1e-12)


@given(seed=seeds)
def test_i42_an_empty_split_is_neutral_whatever_it_holds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    out, lse = rng.normal(size=(3, 4, 2, 5)), rng.normal(size=(3, 4, 2))
    out[1], lse[1] = np.nan, -np.inf
    merged, merged_lse = merge_partials(out, lse)
    without, without_lse = merge_partials(out[[0, 2]], lse[[0, 2]])
    np.testing.assert_array_equal(merged, without)
    np.testing.assert_array_equal(merged_lse, without_lse)


def test_i42_nothing_but_empty_splits() -> None:
    merged, lse = merge_partials(np.full((2, 3, 4), np.nan), np.full((2, 3), -np.inf))
    assert (merged == 0).all() and np.isneginf(lse).all()


@given(seed=seeds)
def test_i43_grouped_queries_equal_repeated_kv_heads(seed: int) -> None:
    batch = make_ragged(seed)
    group = batch.q.shape[1] // batch.kv_cache.shape[3]
    repeated = replace(batch, kv_cache=np.repeat(batch.kv_cache, group, axis=3))
    np.testing.assert_array_equal(repeated.paged(), batch.paged())


@given(seed=seeds)
def test_i44_options_that_do_nothing(seed: int) -> None:
    batch = make_ragged(seed)
    plain = batch.paged()
    np.testing.assert_array_equal(batch.paged(window=int(batch.context_lens.max())), plain)
    np.testing.assert_array_equal(batch.paged(alibi_slopes=np.zeros(batch.q.shape[1])), plain)
    np.testing.assert_array_equal(batch.paged(sinks=np.full(batch.q.shape[1], -np.inf)), plain)
    np.testing.assert_allclose(batch.paged(soft_cap=1e9), plain, rtol=1e-5, atol=1e-6)


@given(seed=seeds, options=st.sampled_from(OPTIONS))
def test_i47_decode_equals_the_last_row_of_prefill(seed: int, options: dict[str, Any]) -> None:
    batch = make_ragged(seed)
    options = fill(batch, options)
    last_rows = batch.query_start_loc[1:] - 1
    decode = replace(
        batch, q=batch.q[last_rows], query_start_loc=np.arange(len(batch.context_lens) + 1)
    )
    np.testing.assert_array_equal(decode.paged(**options), batch.paged(**options)[last_rows])


def test_a_padding_sequence_has_no_queries_and_reads_nothing() -> None:
    batch = make_ragged(3)
    padded = replace(
        batch,
        block_tables=np.vstack([batch.block_tables, np.full_like(batch.block_tables[:1], -1)]),
        context_lens=np.append(batch.context_lens, 0),
        query_start_loc=np.append(batch.query_start_loc, batch.query_start_loc[-1]),
    )
    np.testing.assert_array_equal(padded.paged(), batch.paged())


def test_one_key_weighs_everything() -> None:
    q, kv = np.ones((1, 1, 2)), np.array([[[3.0, 5.0]]])
    out, lse = causal_attention(q, kv, kv, scale=1.0)
    assert out.tolist() == [[[3.0, 5.0]]]
    assert lse.tolist() == [[8.0]]


def test_a_sink_as_heavy_as_the_only_key_takes_half() -> None:
    q, kv = np.ones((1, 1, 2)), np.array([[[3.0, 5.0]]])
    out, lse = causal_attention(q, kv, kv, scale=1.0, sinks=np.array([8.0]))
    np.testing.assert_allclose(out, [[[1.5, 2.5]]])
    np.testing.assert_allclose(lse, [[8.0 + np.log(2.0)]])


@given(seed=seeds)
def test_a_quantised_cache_is_a_cache_of_the_numbers_it_stands_for(seed: int) -> None:
    batch = make_ragged(seed)
    rng = np.random.default_rng(seed)
    stored = rng.integers(-128, 128, batch.kv_cache.shape).astype(np.int8)
    scales = rng.uniform(0.01, 0.1, (2, 2, batch.kv_cache.shape[3])).astype(np.float32)
    plain = replace(batch, kv_cache=stored * scales[:, :, None, :, None, None].astype(float))
    out, lse = replace(batch, kv_cache=stored).paged_with_lse(kv_scales=scales)
    expected, expected_lse = plain.paged_with_lse()
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(lse, expected_lse)


def test_a_number_of_a_quantised_cache_stands_for_itself_times_its_head_s_scale() -> None:
    """One query, one key of two heads, whose values are 6 and 10 under scales 0.5 and 0.25."""
    kv_cache = np.zeros((1, 2, 1, 2, 1, 2), np.int8)
    kv_cache[0, 1, 0, :, 0] = [[6, 6], [10, 10]]
    scales = np.array([[[1.0, 1.0], [0.5, 0.25]]])
    out, _ = paged_attention(
        np.ones((1, 2, 2)), kv_cache, np.array([[0]]), np.array([1]), np.array([0, 1]),
        layer=0, scale=1.0, kv_scales=scales,
    )  # fmt: skip
    assert out.tolist() == [[[3.0, 3.0], [2.5, 2.5]]]


def test_more_queries_than_positions() -> None:
    q, kv = np.ones((3, 1, 2)), np.ones((2, 1, 2))
    with pytest.raises(ValueError, match="3 queries, but the context has only 2 positions"):
        causal_attention(q, kv, kv, scale=1.0)


@pytest.mark.parametrize("block", [-1, 4])
def test_a_table_that_points_outside_of_the_pool(block: int) -> None:
    with pytest.raises(IndexError, match=f"block {block} of a table is not one of 0..3"):
        list(kv_blocks(np.zeros((2, 4, 1, 2, 1)), np.array([block]), 1))
