"""What the XLA twin promises beyond what any kernel must."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paged_conformance.kernel.arrays import UNIT_ROUNDOFF
from paged_conformance.kernel.cases import Lengths, fill, make_case
from paged_conformance.kernel.draws import lengths, seeds
from paged_conformance.kernel.expected import assert_agrees, oracle
from paged_conformance.kernel.sizes import Sizes
from pallas_kernels import paged_attention
from tests.kernels.kernel import Ours

SIZES = Sizes()
xla = Ours("xla", SIZES)
EVERYTHING = {"window": 50, "soft_cap": 3.0, "alibi_slopes": True, "sinks": True}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@given(lengths=lengths(SIZES), seed=seeds())
def test_half_precision_is_rounded_once(lengths: Lengths, seed: int, dtype: str) -> None:
    """Weights stay float32, so that rounding the result is the only difference."""
    case = make_case(lengths, seed, SIZES.geometries[0], SIZES).as_dtype(dtype)
    expected, _ = oracle(case, {})
    np.testing.assert_allclose(xla(case, {})[0], expected, rtol=UNIT_ROUNDOFF[dtype], atol=1e-5)


@pytest.mark.parametrize("block_size", [1, 2, 24, 64, 100, 128])
def test_any_block_size(block_size: int) -> None:
    lengths = [(1, 200), (70, 60), (1, 0), (3, 310), (1, 127), (1, 128), (64, 256)]
    case = make_case(lengths, block_size, (block_size, 1, 2, 8), SIZES)
    assert_agrees(xla(case, {}), case, {})


@pytest.mark.parametrize("window", [None, 5, 50])
@given(data=st.data())
def test_i47_a_query_s_bits_depend_on_where_its_prompt_ends(
    window: int | None, data: st.DataObject
) -> None:
    """The same holds of the kernel for a CPU: whole, in chunks, one by one, a rest of one token."""
    length, prompt = 150, data.draw(st.integers(1, 150))
    case = make_case([(length, 0)], 1, (16, 2, 3, 20), SIZES)
    options = fill({"window": window, "sinks": True, "soft_cap": 3.0}, case)
    ends = {"prompt_lens": np.full_like(case.context_lens, prompt)}
    whole = xla(case, options | ends)
    assert_agrees(whole, case, options)
    cuts = {0, prompt - 1, length, *data.draw(st.sets(st.integers(0, length), max_size=5))}
    for start, stop in pairwise(sorted(cuts)):
        q = np.zeros_like(case.q)
        q[: stop - start] = case.q[start:stop]
        lens = np.where(case.context_lens > 0, stop, 0).astype(np.int32)
        starts = np.minimum(case.query_start_loc, stop - start)
        chunk = replace(case, q=q, context_lens=lens, query_start_loc=starts)
        found = xla(chunk, options | ends)[0][: stop - start]
        np.testing.assert_array_equal(found, whole[0][start:stop], err_msg=f"{start}:{stop}")


@given(lengths=lengths(SIZES), seed=seeds(), data=st.data())
@pytest.mark.parametrize("options", [{}, EVERYTHING], ids=["plain", "everything"])
def test_prompts_may_end_anywhere(
    options: dict[str, Any], lengths: Lengths, seed: int, data: st.DataObject
) -> None:
    case = make_case(lengths, seed, SIZES.geometries[1], SIZES)
    options = fill(options, case)
    ends = [data.draw(st.integers(0, 1 + int(one))) for one in case.context_lens]
    ends_of = {"prompt_lens": np.array(ends, np.int32)}
    assert_agrees(xla(case, options | ends_of), case, options)


@pytest.mark.parametrize("options", [{}, {"sinks": np.ones(4, np.float32)}], ids=["plain", "sinks"])
def test_a_token_that_sees_nothing_weighs_nothing(options: dict[str, Any]) -> None:
    """A sequence with a token and no context, such as a part of a context that is empty."""
    case = make_case([(1, 20), (1, 0)], 0, SIZES.geometries[0], SIZES)
    lens = case.context_lens.copy()
    lens[1] = 0
    out, lse = xla(replace(case, context_lens=lens), options | {"return_lse": True})
    assert lse is not None
    assert not out[1].any() and np.isneginf(lse[1]).all()
    assert out[0].all() and np.isfinite(lse[0]).all()


@pytest.mark.slow
def test_a_row_beside_one_with_far_larger_scores() -> None:
    """Eight rows, computed together, do not share their largest score: exp(-800) is 0."""
    rows = 8
    values = jnp.arange(8.0 * rows).reshape(1, 1, rows, 1, 1, 8)
    kv_cache = jnp.concatenate([jnp.ones_like(values), values], axis=1)
    found = paged_attention(
        jnp.zeros((rows, 1, 8)).at[3].set(100.0),
        kv_cache,
        jnp.arange(rows)[:, None],
        jnp.ones(rows, jnp.int32),
        jnp.arange(rows + 1),
        layer=0,
        scale=1.0,
        backend="xla",
    )
    np.testing.assert_array_equal(found[:, 0], values.reshape(rows, 8))
