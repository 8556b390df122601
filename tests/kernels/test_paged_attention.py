"""`paged_attention` against the oracle, and the kernel invariants I40, I41, I43, I44, I47."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.cases import (
    CONTEXT,
    OPTIONS,
    PLAIN,
    Case,
    attend,
    cases,
    lengths_of_steps,
    make_case,
    oracle,
    visible,
)

# Both sides add up at most 320 products of numbers of order 1, in float32 and different orders.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
options = st.sampled_from(OPTIONS)
slopes = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)


@given(cases(), options)
def test_agrees_with_the_oracle(case: Case, option: dict[str, Any]) -> None:
    np.testing.assert_allclose(attend(case, **option), oracle(case, **option), **TOLERANCE)


@given(cases(decode_only=True), options)
def test_decode_only_agrees_with_the_oracle(case: Case, option: dict[str, Any]) -> None:
    got = attend(case, decode_only=True, **option)
    np.testing.assert_allclose(got, oracle(case, **option), **TOLERANCE)


@given(cases())
def test_alibi_agrees_with_the_oracle(case: Case) -> None:
    mine = slopes[: case.q.shape[1]]
    np.testing.assert_allclose(attend(case, slopes=mine), oracle(case, slopes=mine), **TOLERANCE)


# Rounding the result to the dtype is the only difference: inputs are rounded before, and all
# sums are float32. Half a unit in the last place is 2**-9 of a bfloat16 and 2**-12 of a float16.
@pytest.mark.parametrize(("dtype", "epsilon"), [(jnp.bfloat16, 2**-8), (jnp.float16, 2**-11)])
@given(lengths=lengths_of_steps(), seed=st.integers(0, 2**32 - 1))
def test_half_precision_accumulates_in_float32(
    lengths: list[tuple[int, int]], seed: int, dtype: Any, epsilon: float
) -> None:
    case = make_case(lengths, seed)
    q, cache = (np.asarray(jnp.asarray(x, dtype), np.float32) for x in (case.q, case.kv_cache))
    rounded = replace(case, q=q, kv_cache=cache)
    got = attend(rounded, dtype=dtype)
    np.testing.assert_allclose(got, oracle(rounded, **PLAIN), rtol=epsilon, atol=1e-5)


@pytest.mark.parametrize("block_size", [1, 2, 24, 64, 100, 128])
def test_any_block_size(block_size: int) -> None:
    lengths = [(1, 200), (70, 60), (1, 0), (3, 310), (1, 127), (1, 128), (64, 256)]
    case = make_case(lengths, block_size, (block_size, 1, 2, 8))
    np.testing.assert_allclose(attend(case), oracle(case), **TOLERANCE)


@given(cases(), st.integers(0, 2**32 - 1))
def test_i40_where_the_blocks_lie_does_not_matter(case: Case, seed: int) -> None:
    to = np.random.default_rng(seed).permutation(case.kv_cache.shape[2]).astype(np.int32)
    moved = np.empty_like(case.kv_cache)
    moved[:, :, to] = case.kv_cache
    renamed = replace(case, kv_cache=moved, block_tables=to[case.block_tables])
    np.testing.assert_array_equal(attend(case), attend(renamed))


@given(cases(), options, st.sampled_from([np.nan, np.inf, -np.inf]))
def test_i41_what_must_not_be_read_does_not_matter(
    case: Case, option: dict[str, Any], poison: float
) -> None:
    read = visible(case, option["window"])[None, None, :, None, :, None]
    cache = np.where(read, case.kv_cache, poison).astype(np.float32)
    cache[1 - case.layer] = poison
    tables = case.block_tables.copy()
    for table, length in zip(tables, case.context_lens, strict=True):
        table[-(-length // case.block_size) :] = np.iinfo(np.int32).max
    q = case.q.copy()
    q[case.num_tokens :] = poison
    poisoned = replace(case, q=q, kv_cache=cache, block_tables=tables)
    np.testing.assert_array_equal(attend(case, **option), attend(poisoned, **option))


@given(cases(), st.data())
def test_a_broken_sequence_stays_alone(case: Case, data: st.DataObject) -> None:
    """Not-a-numbers that one sequence computed itself do not reach its neighbours."""
    broken = data.draw(st.integers(0, np.count_nonzero(case.query_lens) - 1))
    blocks = -(-int(case.context_lens[broken]) // case.block_size)
    cache = case.kv_cache.copy()
    cache[:, :, case.block_tables[broken, :blocks]] = np.nan
    got, clean = attend(case.with_cache(cache)), attend(case)
    mine = slice(*case.query_start_loc[broken : broken + 2])
    assert np.isnan(got[mine]).all()
    others = np.ones(len(got), bool)
    others[mine] = False
    np.testing.assert_array_equal(got[others], clean[others])


@given(lengths=lengths_of_steps(), seed=st.integers(0, 2**32 - 1))
def test_i43_grouped_heads_are_repeated_kv_heads(lengths: list[tuple[int, int]], seed: int) -> None:
    grouped = make_case(lengths, seed, (4, 2, 2, 8))
    repeated = grouped.with_cache(np.repeat(grouped.kv_cache, 2, axis=3))
    np.testing.assert_allclose(attend(grouped), attend(repeated), **TOLERANCE)


@given(lengths=lengths_of_steps(), seed=st.integers(0, 2**32 - 1))
def test_i44_options_that_do_nothing(lengths: list[tuple[int, int]], seed: int) -> None:
    case = make_case(lengths, seed)
    plain = attend(case)
    wide = attend(case, window=CONTEXT, soft_cap=1e5)
    np.testing.assert_allclose(wide, plain, **TOLERANCE)
    flat = attend(case, slopes=np.zeros(case.q.shape[1], np.float32))
    np.testing.assert_allclose(flat, plain, **TOLERANCE)


@given(cases(), options)
def test_i47_a_decode_is_the_last_row_of_a_prefill(case: Case, option: dict[str, Any]) -> None:
    last = case.query_start_loc[1:][case.query_lens > 0] - 1
    starts = np.minimum(np.arange(len(case.context_lens) + 1), len(last)).astype(np.int32)
    q = np.zeros_like(case.q[: len(case.context_lens)])
    q[: len(last)] = case.q[last]
    decode = replace(case, q=q, query_start_loc=starts)
    got = attend(decode, decode_only=True, **option)[: len(last)]
    np.testing.assert_allclose(got, attend(case, **option)[last], **TOLERANCE)


@given(cases())
def test_padding_tokens_give_zeros(case: Case) -> None:
    assert not attend(case)[case.num_tokens :].any()
