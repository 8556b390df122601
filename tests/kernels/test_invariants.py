"""What holds of any kernel of paged attention without an oracle: I40-I44, I47."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import reference.attention
from tests.kernels.cases import Case, Lengths, fill, make_case, poisoned
from tests.kernels.draws import cases, lengths, seeds
from tests.kernels.expected import assert_agrees, assert_same
from tests.kernels.holds import attend, holds
from tests.kernels.kernel import Kernel

pytestmark = pytest.mark.conformance

windows = pytest.mark.parametrize(
    "options", [{}, {"window": 5}, {"window": True, "soft_cap": 1.5}], ids=["all", "5", "wide"]
)


@holds(case=cases, seed=seeds)
def test_i40_where_the_blocks_lie_does_not_matter(kernel: Kernel, case: Case, seed: int) -> None:
    to = np.random.default_rng(seed).permutation(case.kv_cache.shape[2]).astype(np.int32)
    moved = np.empty_like(case.kv_cache)
    moved[:, :, to] = case.kv_cache
    renamed = replace(case, kv_cache=moved, block_tables=to[case.block_tables])
    np.testing.assert_array_equal(attend(kernel, case)[0], attend(kernel, renamed)[0])


@pytest.mark.slow
@windows
@holds(case=cases, poison=lambda sizes: st.sampled_from([np.nan, np.inf, -np.inf]))
def test_i41_slots_that_must_not_be_read_do_not_matter(
    kernel: Kernel, options: dict[str, Any], case: Case, poison: float
) -> None:
    """The slots are past a context, before the window, in other blocks, or in other layers."""
    options = fill(options, case)
    wild = poisoned(case, options.get("window"), poison)
    expected = attend(kernel, case, options)[0]
    np.testing.assert_array_equal(expected, attend(kernel, wild, options)[0])


@holds(case=cases)
def test_i41_of_values_in_the_keys(kernel: Kernel, case: Case) -> None:
    """What a masked score hides of a key must be hidden of the value, which is the same number."""
    case = case.values_in_keys()
    wild = poisoned(case, None, np.nan)
    np.testing.assert_array_equal(attend(kernel, case)[0], attend(kernel, wild)[0])


@holds(lengths=lengths, seed=seeds)
def test_i41_of_an_8_bit_cache(kernel: Kernel, lengths: Lengths, seed: int) -> None:
    case = make_case(lengths, seed, kernel.sizes.geometries[0], kernel.sizes)
    case = case.quantized("float8_e4m3fn")
    wild = poisoned(case, None, np.nan)
    np.testing.assert_array_equal(attend(kernel, case)[0], attend(kernel, wild)[0])


@windows
@holds(case=cases)
def test_i41_table_entries_past_the_context_are_not_followed(
    kernel: Kernel, options: dict[str, Any], case: Case
) -> None:
    options = fill(options, case)
    tables = case.block_tables.copy()
    for table, length in zip(tables, case.context_lens, strict=True):
        table[-(-length // case.block_size) :] = np.iinfo(np.int32).max
    wild = replace(case, block_tables=tables)
    expected = attend(kernel, case, options)[0]
    np.testing.assert_array_equal(expected, attend(kernel, wild, options)[0])


@holds(case=cases)
def test_i41_padding_queries_do_not_matter(kernel: Kernel, case: Case) -> None:
    q = case.q.copy()
    q[case.num_tokens :] = np.nan
    expected = attend(kernel, case)[0]
    np.testing.assert_array_equal(expected, attend(kernel, replace(case, q=q))[0])


@holds(case=cases, choice=lambda sizes: st.integers(0, sizes.seqs - 1))
def test_i41_a_broken_sequence_stays_alone(kernel: Kernel, case: Case, choice: int) -> None:
    """Not-a-numbers that one sequence computed itself reach nobody who does not share them."""
    broken = choice % np.count_nonzero(case.query_lens)
    mine = case.blocks_of(broken)
    cache = case.kv_cache.copy()
    cache[:, :, list(mine)] = np.nan
    got, clean = attend(kernel, case.with_cache(cache))[0], attend(kernel, case)[0]
    assert np.isnan(got[case.queries_of(broken)]).all()
    assert not got[case.num_tokens :].any()
    for other in range(len(case.context_lens)):
        if not mine & case.blocks_of(other):
            rows = case.queries_of(other)
            np.testing.assert_array_equal(got[rows], clean[rows])


@holds(
    lengths=lambda sizes: lengths(sizes, decode_only=True),
    seed=seeds,
    cut=lambda sizes: st.integers(1, sizes.context),
)
def test_i42_a_context_in_two_parts(kernel: Kernel, lengths: Lengths, seed: int, cut: int) -> None:
    """Cut each context at a block's edge, attend to both parts, merge: the whole.

    A part may be empty. It is a sequence without context, and weighs nothing.
    """
    sizes = kernel.sizes
    case = make_case(lengths, seed, sizes.geometries[0], sizes, decode_only=True)
    blocks = min(-(-cut // case.block_size), case.block_tables.shape[1])
    head = replace(case, context_lens=np.minimum(case.context_lens, blocks * case.block_size))
    # A query needs a context of its own: the first part always has one, the last part not.
    has_tail = case.context_lens > blocks * case.block_size
    order = np.argsort(~has_tail, kind="stable")
    count = np.arange(len(has_tail) + 1)
    tail = replace(
        case,
        q=case.q[order],
        block_tables=np.roll(case.block_tables, -blocks, axis=1)[order],
        context_lens=np.where(has_tail, case.context_lens - head.context_lens, 0)[order],
        query_start_loc=np.minimum(count, has_tail.sum()).astype(np.int32),
    )
    options = {"return_lse": True}
    first, last = attend(kernel, head, options), attend(kernel, tail, options)
    assert first[1] is not None and last[1] is not None
    back = np.argsort(order)
    merged = reference.attention.merge_partials(
        np.stack([first[0], last[0][back]]), np.stack([first[1], last[1][back]])
    )
    assert_same(merged, attend(kernel, case, options), case, options)


@pytest.mark.slow
@holds(lengths=lengths, seed=seeds)
def test_i43_grouped_heads_are_repeated_kv_heads(
    kernel: Kernel, lengths: Lengths, seed: int
) -> None:
    grouped = make_case(lengths, seed, kernel.sizes.geometries[0], kernel.sizes)
    group = grouped.q.shape[1] // grouped.kv_cache.shape[3]
    repeated = grouped.with_cache(np.repeat(grouped.kv_cache, group, axis=3))
    assert_same(attend(kernel, grouped), attend(kernel, repeated), grouped, {})


NOTHING: dict[str, dict[str, Any]] = {
    "window": {"window": 10**6},
    "soft-cap": {"soft_cap": 1e5},
    "alibi": {"alibi_slopes": 0.0},
    "sinks": {"sinks": -np.inf},
}


@pytest.mark.slow
@pytest.mark.parametrize("options", NOTHING.values(), ids=NOTHING.keys())
@holds(lengths=lengths, seed=seeds)
def test_i44_options_that_do_nothing(
    kernel: Kernel, options: dict[str, Any], lengths: Lengths, seed: int
) -> None:
    case = make_case(lengths, seed, kernel.sizes.geometries[0], kernel.sizes)
    per_head = {"alibi_slopes", "sinks"} & options.keys()
    heads = np.ones(case.q.shape[1], np.float32)
    options = options | {name: options[name] * heads for name in per_head}
    assert_same(attend(kernel, case, options), attend(kernel, case), case, {})


@windows
@holds(case=cases)
def test_i47_a_decode_is_the_last_row_of_a_prefill(
    kernel: Kernel, options: dict[str, Any], case: Case
) -> None:
    options = fill(options, case)
    last = case.query_start_loc[1:][case.query_lens > 0] - 1
    starts = np.minimum(np.arange(len(case.context_lens) + 1), len(last)).astype(np.int32)
    q = np.zeros_like(case.q[: len(case.context_lens)])
    q[: len(last)] = case.q[last]
    decode = replace(case, q=q, query_start_loc=starts, decode_only=True)
    whole, decoded = attend(kernel, case, options)[0], attend(kernel, decode, options)[0]
    rows = np.zeros_like(decoded)
    rows[: len(last)] = whole[last]
    assert_same((decoded, None), (rows, None), decode, options)


@holds(case=cases)
def test_i36_company_does_not_matter(kernel: Kernel, case: Case) -> None:
    check_company(kernel, case)


def test_i36_company_that_hypothesis_found(kernel: Kernel) -> None:
    """Eight decodes are worked on together and one alone: the two round differently."""
    if kernel.sizes.few_examples:
        pytest.skip("is in the cases of a kernel that is fast to try")
    sizes = kernel.sizes
    lengths = [(1, min(2, sizes.context - 1)), *[(1, 0)] * 7]
    fitting = lengths[: min(sizes.seqs, sizes.tokens)]
    check_company(kernel, make_case(fitting, 0, sizes.geometries[0], sizes))


def check_company(kernel: Kernel, case: Case) -> None:
    """The first sequence gets bit by bit the same whatever the others hold, if only garbage, and
    up to rounding the same when it is alone in a step of that shape."""
    mine = slice(0, case.query_start_loc[1])
    found = attend(kernel, case)[0][mine]
    garbage = case.q.copy()
    garbage[mine.stop :] = np.nan
    np.testing.assert_array_equal(attend(kernel, replace(case, q=garbage))[0][mine], found)
    starts = np.minimum(case.query_start_loc, case.query_start_loc[1])
    lens = np.where(np.arange(len(case.context_lens)) == 0, case.context_lens, 0)
    alone = replace(case, query_start_loc=starts, context_lens=lens.astype(np.int32))
    result = attend(kernel, alone)
    assert_agrees(result, alone, {})
    company = np.zeros_like(result[0])
    company[mine] = found
    assert_same(result, (company, None), alone, {})
