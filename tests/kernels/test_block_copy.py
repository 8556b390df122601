"""`copy_blocks`, `gather_blocks` and `scatter_blocks` against the oracle (I46)."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas_kernels import copy_blocks, gather_blocks, scatter_blocks
from reference.kv_cache import KVCache

BLOCKS, CPU_BLOCKS, ROOM = 7, 5, 4
BACKENDS = ("numba", "xla")
copy, gather, scatter = (
    jax.jit(move, static_argnames="backend")
    for move in (copy_blocks, gather_blocks, scatter_blocks)
)
on_both = pytest.mark.parametrize("backend", BACKENDS)


def filled_cache() -> KVCache:
    cache = KVCache(
        num_layers=2,
        num_blocks=BLOCKS,
        num_kv_heads=2,
        block_size=3,
        head_dim=4,
        num_cpu_blocks=CPU_BLOCKS,
    )
    cache.gpu[:] = np.arange(cache.gpu.size).reshape(cache.gpu.shape)
    cache.cpu[:] = -1.0 - np.arange(cache.cpu.size).reshape(cache.cpu.shape)
    return cache


def injective(sources: int, destinations: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Up to ROOM pairs with distinct sources and distinct destinations."""
    pair = st.tuples(st.integers(0, sources - 1), st.integers(0, destinations - 1))
    return st.lists(pair, max_size=ROOM, unique_by=(lambda p: p[0], lambda p: p[1]))


def columns(pairs: list[tuple[int, int]]) -> tuple[jax.Array, jax.Array]:
    padded = np.array(pairs + [(-1, -1)] * (ROOM - len(pairs)), np.int32)
    return jnp.asarray(padded[:, 0]), jnp.asarray(padded[:, 1])


@on_both
@given(injective(BLOCKS, BLOCKS))
def test_i46_copies_read_everything_before_they_write(
    backend: str, pairs: list[tuple[int, int]]
) -> None:
    before = filled_cache().gpu
    expected = before.copy()
    expected[:, :, [d for _, d in pairs]] = before[:, :, [s for s, _ in pairs]]
    found = copy(jnp.asarray(before), *columns(pairs), backend=backend)
    np.testing.assert_array_equal(np.asarray(found), expected)


@on_both
@given(injective(BLOCKS, CPU_BLOCKS))
def test_i46_swapping_out_is_the_oracles(backend: str, pairs: list[tuple[int, int]]) -> None:
    cache = filled_cache()
    source, _ = columns(pairs)
    data = np.asarray(gather(jnp.asarray(cache.gpu), source, backend=backend))
    cache.swap_out(pairs)
    for (_, cpu), block in zip(pairs, data[: len(pairs)], strict=True):
        np.testing.assert_array_equal(block, cache.cpu[:, :, cpu])


@on_both
@given(injective(CPU_BLOCKS, BLOCKS))
def test_i46_swapping_in_is_the_oracles(backend: str, pairs: list[tuple[int, int]]) -> None:
    cache = filled_cache()
    before = jnp.asarray(cache.gpu)
    source, destination = columns(pairs)
    data = jnp.asarray(np.moveaxis(cache.cpu[:, :, np.maximum(source, 0)], 2, 0))
    after = scatter(before, destination, data, backend=backend)
    cache.swap_in(pairs)
    np.testing.assert_array_equal(np.asarray(after), cache.gpu)


@on_both
@given(st.permutations(range(BLOCKS)))
def test_scatter_undoes_gather(backend: str, order: list[int]) -> None:
    cache = jnp.asarray(filled_cache().gpu)
    ids = jnp.asarray(np.array(order, np.int32))
    again = gather(cache, ids, backend=backend)
    again = scatter(jnp.zeros_like(cache), ids, again, backend=backend)
    np.testing.assert_array_equal(np.asarray(again), np.asarray(cache))


@on_both
def test_every_code_of_8_bits_survives_a_move(backend: str) -> None:
    codes = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).reshape(1, 1, 2, 1, 16, 8)
    ids, none = jnp.array([1, -1]), jnp.array([-1, -1])
    data = jnp.concatenate([jnp.asarray(codes), jnp.zeros_like(codes)])
    empty = jnp.zeros((1, 2, 3, 1, 16, 8), jnp.float8_e4m3fn)
    cache = scatter(empty, ids, data, backend=backend)
    cache = copy(cache, jnp.array([1, 0]), jnp.array([2, -1]), backend=backend)
    cache = scatter(cache, none, data, backend=backend)
    found = np.asarray(gather(cache, jnp.array([2, 0]), backend=backend)).view(np.uint8)
    assert found[0].reshape(-1).tolist() == list(range(256)) and not found[1].any()


@pytest.mark.parametrize("dtype", ["float32", "int8", "float8_e4m3fn"])
def test_a_move_takes_no_memory_for_the_rest_of_the_cache(dtype: str) -> None:
    """XLA would convert a whole cache of 8-bit floats to float16 and back."""
    cache, ids = jax.ShapeDtypeStruct((2, 2, 64, 2, 16, 32), dtype), jnp.zeros(2, int)

    def out_and_in(cache: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
        return scatter_blocks(cache, a, gather_blocks(cache, b))

    for move in (copy_blocks, out_and_in):
        compiled = jax.jit(move, donate_argnums=0).lower(cache, ids, ids).compile()
        used = compiled.memory_analysis().temp_size_in_bytes
        assert used < 3 * 2 * 2 * 2 * 2 * 16 * 32 * jnp.dtype(dtype).itemsize


@pytest.mark.usefixtures("unchecked_shapes")
def test_what_does_not_fit_is_refused() -> None:
    cache, two, three = jnp.zeros((1, 2, 4, 1, 2, 8)), jnp.zeros(2, int), jnp.zeros(3, int)
    with pytest.raises(ValueError, match=r"src\.shape=\(2,\)"):
        copy_blocks(cache, two, three)
    with pytest.raises(ValueError, match=r"ids\.shape=\(2, 3\)"):
        gather_blocks(cache, jnp.zeros((2, 3), int))
    with pytest.raises(ValueError, match=r"data\.shape=\(3, 1, 2, 1, 2, 8\)"):
        scatter_blocks(cache, two, jnp.zeros((3, 1, 2, 1, 2, 8)))
    with pytest.raises(ValueError, match=r"backend='mosaic' lacks .* for float32 on .*; 'xla'"):
        copy_blocks(cache, two, two, backend="mosaic")
