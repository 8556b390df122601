"""What the backend for a CPU promises beyond what any kernel must."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paged_conformance.kernel.arrays import UNIT_ROUNDOFF
from paged_conformance.kernel.cases import Case, Lengths, fill, make_case
from paged_conformance.kernel.draws import lengths, seeds
from paged_conformance.kernel.expected import assert_agrees, oracle
from paged_conformance.kernel.sizes import Sizes
from pallas_kernels import paged_attention
from tests.kernels.kernel import Ours

SIZES = Sizes()
numba = Ours("numba", SIZES)
EVERYTHING = {"window": 50, "soft_cap": 3.0, "alibi_slopes": True, "sinks": True}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@given(lengths=lengths(SIZES), seed=seeds())
def test_half_precision_is_rounded_once(lengths: Lengths, seed: int, dtype: str) -> None:
    """Weights stay float32, so that rounding the result is the only difference."""
    case = make_case(lengths, seed, SIZES.geometries[0], SIZES).as_dtype(dtype)
    expected, _ = oracle(case, {})
    np.testing.assert_allclose(numba(case, {})[0], expected, rtol=UNIT_ROUNDOFF[dtype], atol=1e-5)


@pytest.mark.parametrize("block_size", [1, 2, 24, 64, 100, 128])
def test_any_block_size(block_size: int) -> None:
    lengths = [(1, 200), (70, 60), (1, 0), (3, 310), (1, 63), (1, 64), (64, 256)]
    case = make_case(lengths, block_size, (block_size, 1, 2, 8), SIZES)
    assert_agrees(numba(case, {}), case, {})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("group", range(1, 9))
@pytest.mark.parametrize("dim", [1, 5, 16, 37, 64])
def test_any_group_and_head_size(group: int, dim: int, dtype: str) -> None:
    """Narrow types take ways of their own, which depend on the head size, too."""
    case = make_case([(1, 200), (40, 60), (1, 0), (3, 310)], dim, (16, 2, group, dim), SIZES)
    case = case.quantized(dtype) if dtype == "int8" else case.as_dtype(dtype)
    assert_agrees(numba(case, {}), case, {})


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "float8_e4m3fn"])
@pytest.mark.parametrize("dim", [5, 16, 37, 64])
def test_every_number_of_narrow_types(dtype: str, dim: int) -> None:
    """Values of one-token contexts come back as they are: all bit patterns of 8 bits, and more."""
    case = make_case([(1, 0)] * 12, 3, (16, 2, 1, dim), SIZES)
    case = case.quantized(dtype) if dtype in ("int8", "float8_e4m3fn") else case.as_dtype(dtype)
    width = np.dtype(f"u{case.kv_cache.dtype.itemsize}")
    bits = np.random.default_rng(0).integers(0, 2 ** (8 * width.itemsize), case.kv_cache.shape)
    numbers = bits.astype(width).view(case.kv_cache.dtype)
    # Keys as they were; of the values not those that are no numbers.
    cache = case.kv_cache.copy()
    found = numbers.astype(np.float32)
    usual = np.isfinite(found) & ((found == 0) | (np.abs(found) > 1e-30)) & (np.abs(found) < 1e30)
    cache[:, 1] = np.where(usual, numbers, np.zeros_like(numbers))[:, 1]
    case = case.with_cache(cache)
    expected, _ = oracle(case, {})
    tolerance = UNIT_ROUNDOFF[case.q.dtype.name]
    np.testing.assert_allclose(numba(case, {})[0], expected, rtol=2 * tolerance, atol=0)


@pytest.mark.parametrize("options", [{}, {"sinks": np.ones(4, np.float32)}], ids=["plain", "sinks"])
def test_a_token_that_sees_nothing_weighs_nothing(options: dict[str, Any]) -> None:
    """A sequence with a token and no context, such as a part of a context that is empty."""
    case = make_case([(1, 20), (1, 0)], 0, SIZES.geometries[0], SIZES)
    lens = case.context_lens.copy()
    lens[1] = 0
    out, lse = numba(replace(case, context_lens=lens), options | {"return_lse": True})
    assert lse is not None
    assert not out[1].any() and np.isneginf(lse[1]).all()
    assert out[0].all() and np.isfinite(lse[0]).all()


def mixed() -> Case:
    return make_case([(1, 300), (60, 70), (1, 5), (90, 0), (1, 128)], 1, (16, 2, 3, 64), SIZES)


@given(lengths=lengths(SIZES), seed=seeds())
def test_i36_bit_by_bit_the_same_alone(lengths: Lengths, seed: int) -> None:
    """Items' borders depend on their sequence alone: so do the bits of its result."""
    together = make_case(lengths, seed, SIZES.geometries[0], SIZES)
    options = fill({"window": 50}, together)
    out = numba(together, options)[0]
    start, lens = together.query_start_loc[1], together.context_lens.copy()
    lens[1:] = 0
    starts = np.minimum(together.query_start_loc, start)
    alone = numba(replace(together, query_start_loc=starts, context_lens=lens), options)[0]
    np.testing.assert_array_equal(alone[:start], out[:start])


@given(lengths=lengths(SIZES), seed=seeds(), data=st.data())
@pytest.mark.parametrize("options", [{}, EVERYTHING], ids=["plain", "everything"])
def test_prompts_may_end_anywhere(
    options: dict[str, Any], lengths: Lengths, seed: int, data: st.DataObject
) -> None:
    """Each query is a prefill's or a decode's; few decodes of a sequence, and many."""
    case = make_case(lengths, seed, SIZES.geometries[1], SIZES)
    options = fill(options, case)
    ends = [data.draw(st.integers(0, int(n))) for n in case.context_lens]
    out = numba(case, options | {"prompt_lens": np.array(ends, np.int32)})
    assert_agrees(out, case, options)


@given(data=st.data())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("window", [None, 5, 50])
def test_i47_a_query_s_bits_depend_on_where_its_prompt_ends(
    window: int | None, dtype: str, data: st.DataObject
) -> None:
    """The queries beside it do not count: whole, in chunks, one by one, a rest of one token."""
    length, prompt = 150, data.draw(st.integers(1, 150))
    case = make_case([(length, 0)], 1, (16, 2, 3, 20), SIZES)
    case = case.quantized(dtype) if dtype == "int8" else case.as_dtype(dtype)
    options = fill({"window": window, "sinks": True, "soft_cap": 3.0}, case)
    options["prompt_lens"] = np.full_like(case.context_lens, prompt)
    whole = numba(case, options)[0]
    one_by_one = data.draw(st.sampled_from([[], range(prompt, length, 9)]))
    cuts = {0, prompt - 1, length, *one_by_one, *data.draw(st.sets(st.integers(0, length)))}
    for start, stop in pairwise(sorted(cuts)):
        q = np.zeros_like(case.q)
        q[: stop - start] = case.q[start:stop]
        lens = np.where(case.context_lens > 0, stop, 0).astype(np.int32)
        starts = np.minimum(case.query_start_loc, stop - start)
        chunk = replace(case, q=q, context_lens=lens, query_start_loc=starts)
        found = numba(chunk, options)[0][: stop - start]
        np.testing.assert_array_equal(found, whole[start:stop], err_msg=f"{start}:{stop}")


def test_many_threads_call_at_once() -> None:
    """Each call has its own plan and its own scratch; who shares its work does not matter."""
    case = mixed()
    options = fill(EVERYTHING, case)
    expected = numba(case, options)[0]
    with ThreadPoolExecutor(8) as pool:
        for out in pool.map(lambda _: numba(case, options)[0], range(64)):
            np.testing.assert_array_equal(out, expected)


def test_a_layer_is_read_where_it_lies() -> None:
    """A scan over the layers hands the cache over whole."""
    case = mixed()
    arrays = (case.q, case.kv_cache, case.block_tables, case.context_lens, case.query_start_loc)
    q, *rest = map(jnp.asarray, arrays)

    def layer(x: jax.Array, i: jax.Array) -> tuple[jax.Array, jax.Array]:
        out = paged_attention(x, *rest, layer=i, scale=case.scale, backend="numba")
        return x, out

    _, found = jax.lax.scan(layer, q, jnp.arange(case.kv_cache.shape[0]))
    np.testing.assert_array_equal(found[case.layer], numba(case, {})[0])


def test_functions_of_others_compile_beside_it() -> None:
    """Even one without a module, as code from a string has none."""
    program = """
import numba, cpu_kernels.compiling.jit
names = {"__name__": None}
exec("def more(x): return x + 1", names)
assert names["more"].__module__ is None
print(numba.njit(names["more"])(2))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout.strip() == "3", ended.stderr
