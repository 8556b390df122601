"""`write_kv` against the oracle (I45)."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paged_conformance.kernel.arrays import LARGEST, dtype_of
from pallas_kernels import write_kv
from reference.kv_cache import KVCache

LAYERS, BLOCKS, HEADS, DIM = 2, 6, 2, 4
TOKENS = 8
BACKENDS = ("numba", "xla")
CODES = [dtype_of(name) for name in LARGEST]
write = jax.jit(write_kv, static_argnames="backend")


@pytest.mark.parametrize("backend", BACKENDS)
@given(st.sampled_from([1, 4, 5]), st.integers(0, LAYERS - 1), st.data(), st.integers(0, 2**32 - 1))
def test_i45_tokens_land_in_their_slots_and_nowhere_else(
    backend: str, block_size: int, layer: int, data: st.DataObject, seed: int
) -> None:
    slots = data.draw(
        st.lists(st.integers(0, BLOCKS * block_size - 1), max_size=TOKENS, unique=True)
    )
    padded = data.draw(st.permutations(slots + [-1] * (TOKENS - len(slots))))
    rng = np.random.default_rng(seed)
    k, v = rng.standard_normal((2, TOKENS, HEADS, DIM), np.float32)
    oracle = KVCache(
        num_layers=LAYERS,
        num_blocks=BLOCKS,
        num_kv_heads=HEADS,
        block_size=block_size,
        head_dim=DIM,
    )
    before = jnp.asarray(oracle.gpu)
    slot_mapping = np.array(padded, np.int32)
    oracle.write(layer, k, v, slot_mapping)
    arrays = (before, jnp.asarray(k), jnp.asarray(v), jnp.asarray(slot_mapping))
    after = write(*arrays, layer=layer, backend=backend)
    np.testing.assert_array_equal(np.asarray(after), oracle.gpu)


@pytest.mark.parametrize("backend", BACKENDS)
@given(st.integers(0, LAYERS - 1), st.integers(0, 2**32 - 1))
def test_i45_a_cache_of_keys_alone(backend: str, layer: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = rng.standard_normal((TOKENS, 1, DIM), np.float32)
    oracle = KVCache(
        num_layers=LAYERS,
        num_blocks=BLOCKS,
        num_kv_heads=1,
        block_size=4,
        head_dim=DIM,
        values_in_keys=True,
    )
    slots = rng.permutation(BLOCKS * 4)[:TOKENS].astype(np.int32)
    slots[0] = -1
    arrays = (jnp.asarray(oracle.gpu), jnp.asarray(keys), None, jnp.asarray(slots))
    after = write(*arrays, layer=layer, backend=backend)
    oracle.write(layer, keys, None, slots)
    assert after.shape == (LAYERS, 1, BLOCKS, 1, 4, DIM)
    np.testing.assert_array_equal(np.asarray(after), oracle.gpu)


def test_keys_and_values_take_the_dtype_of_the_cache() -> None:
    cache = jnp.zeros((1, 2, 1, 1, 1, 1), jnp.bfloat16)
    new = jnp.full((1, 1, 1), 1 + 2**-10, jnp.float32)
    after = write_kv(cache, new, -new, jnp.zeros(1, jnp.int32), layer=0)
    assert after.dtype == jnp.bfloat16
    assert after.reshape(2).tolist() == [1.0, -1.0]


@pytest.mark.parametrize("backend", BACKENDS)
@given(
    st.sampled_from([dtype_of(name) for name in LARGEST]),
    st.integers(0, LAYERS - 1),
    st.integers(0, 2**32),
)
def test_i45_8_bit_caches_hold_quotients_rounded_and_clipped(
    backend: str, dtype: Any, layer: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    k, v = rng.standard_normal((2, TOKENS, HEADS, DIM), np.float32)
    # Small enough that some quotients lie outside of the range, large enough that most do not.
    scales = rng.uniform(0.003, 0.02, (LAYERS, 2, HEADS)).astype(np.float32)
    shape = (LAYERS, 2, BLOCKS, HEADS, 4, DIM)
    before = rng.integers(-100, 100, shape).astype(dtype)
    slots = rng.permutation(BLOCKS * 4)[:TOKENS].astype(np.int32)
    slots[0] = -1
    oracle = KVCache(
        num_layers=LAYERS, num_blocks=BLOCKS, num_kv_heads=HEADS, block_size=4, head_dim=DIM,
        scales=scales, kind="int8" if dtype == np.int8 else "fp8",
    )  # fmt: skip
    oracle.gpu[:] = before
    oracle.write(layer, k, v, slots)
    expected = oracle.gpu.astype(dtype)
    arrays = map(jnp.asarray, (before, k, v, slots))
    scales = jnp.asarray(scales)
    after = np.asarray(write(*arrays, layer=layer, kv_scales=scales, backend=backend))
    assert after.dtype == dtype
    np.testing.assert_array_equal(after.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", LARGEST)
def test_what_is_too_large_for_8_bits_becomes_the_largest_number(backend: str, dtype: str) -> None:
    """Infinity too: an 8-bit cache never holds what is not a number, unless it is given one."""
    x = jnp.array([[[1e9, -1e9, jnp.inf, -jnp.inf, 3e38, 0.0, -0.0, 1e-30]]], jnp.float32)
    cache, scales = jnp.zeros((1, 2, 1, 1, 1, 8), dtype), jnp.full((1, 2, 1), 0.5)
    after = write(cache, x, -x, jnp.zeros(1, jnp.int32), layer=0, kv_scales=scales, backend=backend)
    keys, values = np.asarray(after).astype(np.float32).reshape(2, 8)
    most, least = (127, -128) if dtype == "int8" else (448, -448)
    assert keys.tolist() == [most, least, most, least, most, 0, 0, 0]
    assert values.tolist() == [least, most, least, most, least, 0, 0, 0]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_cores_share_a_prompt_of_many_tokens(dtype: Any) -> None:
    """Several ranges of tokens, of which every tenth is padding."""
    tokens, heads, dim, block_size, blocks = 333, 3, 64, 16, 40
    rng = np.random.default_rng(0)
    k, v = jnp.asarray(rng.standard_normal((2, tokens, heads, dim)), dtype)
    slots = rng.permutation(blocks * block_size)[:tokens].astype(np.int32)
    slots[::10] = -1
    before = jnp.asarray(rng.standard_normal((2, 2, blocks, heads, block_size, dim)), dtype)
    expected = np.array(before)
    real = np.flatnonzero(slots >= 0)
    places = slots[real] // block_size, slice(None), slots[real] % block_size
    expected[(1, 0, *places)], expected[(1, 1, *places)] = k[real], v[real]
    after = write(before, k, v, jnp.asarray(slots), layer=1, backend="numba")
    np.testing.assert_array_equal(np.asarray(after, np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("backend", BACKENDS)
def test_slots_beyond_the_cache_are_dropped(backend: str) -> None:
    cache, new = jnp.zeros((1, 2, 3, 1, 4, 2)), jnp.ones((2, 1, 2))
    after = write(cache, new, new, jnp.array([12, -7]), layer=0, backend=backend)
    assert not np.asarray(after).any()


@pytest.mark.parametrize(
    "change",
    [
        {"kv_cache": jnp.zeros((1, 3, 2, 1, 4, 8))},
        {"k": jnp.zeros((3, 1, 4))},
        {"v": jnp.zeros((2, 1, 8))},
        {"v": None},
        {"kv_cache": jnp.zeros((1, 1, 2, 1, 4, 8))},
        {"backend": "triton"},
        {"kv_scales": jnp.ones((1, 2, 1))},
        {"kv_cache": jnp.zeros((1, 2, 2, 1, 4, 8), jnp.int8)},
    ],
)
@pytest.mark.usefixtures("unchecked_shapes")
def test_what_does_not_fit_is_refused(change: dict[str, object]) -> None:
    tokens = jnp.zeros((3, 1, 8))
    arguments: dict[str, object] = {
        "kv_cache": jnp.zeros((1, 2, 2, 1, 4, 8)),
        "k": tokens,
        "v": tokens,
        "slot_mapping": jnp.zeros(3, jnp.int32),
    }
    with pytest.raises(ValueError, match=r"shape|lacks this operation|kv_scales belong"):
        partial(write_kv, layer=0)(**arguments | change)
