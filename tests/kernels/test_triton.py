"""What is particular to the Triton backend; the property suite runs on it as on any other."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pallas_kernels
from paged_conformance.kernel.cases import Case, make_case
from paged_conformance.kernel.expected import assert_agrees
from paged_conformance.kernel.sizes import Sizes
from pallas_kernels.call import Call, Options
from pallas_kernels.gpu_metadata import make_gpu_metadata
from pallas_kernels.triton.attention import make_metadata, missing, tile_queries
from pallas_kernels.triton.decode import attend_rows
from pallas_kernels.triton.heads import parts
from pallas_kernels.triton.merge import merge_rows
from pallas_kernels.triton.operands import geometry, operands
from pallas_kernels.triton.prefill import attend_tiles, tiling
from pallas_kernels.triton.quantized import widen_e4m3
from pallas_kernels.triton.splits import LEAST_SPLITS, MOST_SPLITS, num_splits, split_steps
from pallas_kernels.tuning import TritonDecodeConfig, TritonPrefillConfig

SIZES = Sizes(tokens=48, seqs=4, context=160)
LENGTHS = [(1, 159), (20, 30), (1, 0), (1, 70)]


def arrays(case: Case) -> tuple[Any, ...]:
    """The first arguments of `paged_attention`."""
    numpy = (case.q, case.kv_cache, case.block_tables, case.context_lens, case.query_start_loc)
    return tuple(map(jnp.asarray, numpy))


@pytest.mark.parametrize("window", [None, 50])
@pytest.mark.parametrize(("splits", "programs"), [(1, 1), (2, 2), (3, 3), (7, 7), (7, 1), (7, 3)])
@pytest.mark.slow
def test_i42_the_number_of_splits_does_not_matter(
    splits: int, programs: int, window: int | None
) -> None:
    case = make_case([(1, 159), (1, 0), (1, 70)], splits, (8, 2, 3, 32), SIZES, decode_only=True)
    call = Call(*arrays(case), jnp.int32(case.layer))
    options = Options(case.scale, window, return_lse=True)
    metadata = make_metadata(*call[3:5], len(case.q), decode_only=True)
    given, shape = operands(call), geometry(call, options)
    config = TritonDecodeConfig(block_kv=16)
    partials = attend_rows(
        given, shape, metadata, config=config, splits=splits, programs=programs, interpret=True
    )
    out, lse = merge_rows(given, shape, metadata, partials, None, block_kv=16, interpret=True)
    assert lse is not None
    assert_agrees((np.asarray(out), np.asarray(lse)), case, {"window": window, "return_lse": True})


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("block_q", [16, 64])
@pytest.mark.slow
def test_how_tiles_are_cut_does_not_matter(block_q: int, window: int | None) -> None:
    """With a window, the last queries of a tile see nothing of the first one's step."""
    case = make_case([(40, 30), (8, 100)], block_q, (8, 1, 3, 16), SIZES)
    call = Call(*arrays(case), jnp.int32(case.layer))
    options = Options(case.scale, window, return_lse=True)
    metadata = make_gpu_metadata(*call[3:5], len(case.q), tile_queries=32, decode_only=False)
    config = TritonPrefillConfig(block_q=block_q, block_kv=16)
    given, shape = operands(call), geometry(call, options)
    found = attend_tiles(given, shape, metadata, *call[3:5], config=config, interpret=True)
    got = (np.asarray(found.out), np.asarray(found.lse))
    assert_agrees(got, case, {"window": window, "return_lse": True})


@pytest.mark.parametrize("heads", [17, 64, 96])
@pytest.mark.slow
def test_more_query_heads_than_a_tile_has_rows(heads: int) -> None:
    case = make_case(LENGTHS, heads, (16, 1, heads, 16), SIZES)
    out = pallas_kernels.paged_attention(
        *arrays(case), layer=case.layer, scale=case.scale, backend="triton"
    )
    assert_agrees((np.asarray(out), None), case, {})


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
@pytest.mark.slow
def test_quantised_caches_under_half_precision_queries(dtype: str) -> None:
    case = make_case(LENGTHS, 0, (16, 2, 2, 80), SIZES).as_dtype("bfloat16").quantized(dtype)
    out = pallas_kernels.paged_attention(
        *arrays(case),
        layer=case.layer,
        scale=case.scale,
        kv_scales=jnp.asarray(case.kv_scales),
        backend="triton",
    )
    assert_agrees((np.asarray(out, np.float32), None), case, {})


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_every_fp8_number_is_widened_exactly(dtype: Any) -> None:
    stored = jnp.arange(256, dtype=jnp.uint8).view(jnp.float8_e4m3fn)
    got = widen_e4m3(stored, dtype)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.astype(jnp.float32), stored.astype(jnp.float32))


@pytest.mark.parametrize("dim", [8, 16, 24, 64, 80, 96, 112, 128, 192, 256])
def test_parts_cover_a_head_with_little_padding(dim: int) -> None:
    found = parts(dim)
    assert [begin for begin, _ in found] == [0, *np.cumsum([size for _, size in found])[:-1]]
    assert all(size >= 16 and size & (size - 1) == 0 for _, size in found)
    assert dim <= sum(size for _, size in found) <= max(dim * 8 / 7, dim + 15)


def test_parts_cover_a_head_in_few_pieces() -> None:
    assert parts(64) == ((0, 64),)
    assert parts(80) == ((0, 64), (64, 16))
    assert parts(112) == ((0, 128),)


@pytest.mark.parametrize("window", [None, 1, 100])
@pytest.mark.parametrize("context", [0, 1, 64, 65, 1000])
def test_splits_share_out_every_visible_step_once(context: int, window: int | None) -> None:
    first, end, each = map(int, split_steps(jnp.int32(context), window, 64, 5))
    begins = [first + i * each for i in range(5)]
    shared = [step for begin in begins for step in range(begin, min(end, begin + each))]
    low = 0 if window is None else max(context - window, 0)
    assert shared == sorted({position // 64 for position in range(low, context)})


def test_the_number_of_splits_fills_the_device_and_no_more() -> None:
    assert num_splits(8, 2**17, 64, 132) * 8 == 2 * 132
    assert num_splits(1, 2**17, 64, 132) == MOST_SPLITS
    assert num_splits(512, 2**17, 64, 132) == LEAST_SPLITS
    assert num_splits(8, 128, 64, 132) == 1


def test_a_tile_has_rows_enough_for_a_tensor_core() -> None:
    for tokens, seqs in ((1, 1), (64, 64), (64, 16), (100, 3), (2048, 64), (8192, 1)):
        for group in (1, 3, 8, 64):
            for block_q in (16, 32, 128):
                found = tiling(group, tile_queries(tokens, seqs), block_q)
                rows = found.queries * found.heads
                assert 16 <= rows <= block_q and rows & (rows - 1) == 0
                assert found.queries * found.parts == tile_queries(tokens, seqs)


@pytest.mark.parametrize(
    ("dtype", "blocks", "lacks"),
    [
        ("int8", 2**16, False),
        ("int8", 2**16 + 1, True),
        ("int8", 2**17 + 1, False),
        ("float16", 1, True),
        ("float32", 2**16 + 1, False),
        ("float64", 1, True),
    ],
)
def test_caches_that_are_refused(dtype: str, blocks: int, lacks: bool) -> None:
    """JAX's 32-bit offsets turn negative between 2 and 4 GiB of single bytes."""
    half = "bfloat16" if dtype == "int8" else "float32"
    case = make_case(LENGTHS, 0, (16, 1, 1, 16), SIZES).as_dtype(half)
    call = Call(*arrays(case), jnp.int32(0))
    if dtype == "int8":
        call = call._replace(kv_scales=jnp.ones((1, 2, 8)))
    shape = (1, 2, blocks, 8, 16, 128)
    cache: Any = jax.ShapeDtypeStruct(shape, np.dtype(dtype))
    found = missing(call._replace(kv_cache=cache), Options(1.0))
    assert (found is not None) == lacks
