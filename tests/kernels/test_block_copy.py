"""`copy_blocks`, `gather_blocks` and `scatter_blocks` against the oracle (I46)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas_kernels import copy_blocks, gather_blocks, scatter_blocks
from reference.kv_cache import KVCache

BLOCKS, CPU_BLOCKS, ROOM = 7, 5, 4
copy, gather, scatter = jax.jit(copy_blocks), jax.jit(gather_blocks), jax.jit(scatter_blocks)


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


@given(injective(BLOCKS, BLOCKS))
def test_i46_copies_read_everything_before_they_write(pairs: list[tuple[int, int]]) -> None:
    before = filled_cache().gpu
    expected = before.copy()
    expected[:, :, [d for _, d in pairs]] = before[:, :, [s for s, _ in pairs]]
    np.testing.assert_array_equal(np.asarray(copy(jnp.asarray(before), *columns(pairs))), expected)


@given(injective(BLOCKS, CPU_BLOCKS))
def test_i46_swapping_out_is_the_oracles(pairs: list[tuple[int, int]]) -> None:
    cache = filled_cache()
    source, _ = columns(pairs)
    data = np.asarray(gather(jnp.asarray(cache.gpu), source))
    cache.swap_out(pairs)
    for (_, cpu), block in zip(pairs, data[: len(pairs)], strict=True):
        np.testing.assert_array_equal(block, cache.cpu[:, :, cpu])


@given(injective(CPU_BLOCKS, BLOCKS))
def test_i46_swapping_in_is_the_oracles(pairs: list[tuple[int, int]]) -> None:
    cache = filled_cache()
    before = jnp.asarray(cache.gpu)
    source, destination = columns(pairs)
    data = jnp.asarray(np.moveaxis(cache.cpu[:, :, np.maximum(source, 0)], 2, 0))
    after = scatter(before, destination, data)
    cache.swap_in(pairs)
    np.testing.assert_array_equal(np.asarray(after), cache.gpu)


@given(st.permutations(range(BLOCKS)))
def test_scatter_undoes_gather(order: list[int]) -> None:
    cache = jnp.asarray(filled_cache().gpu)
    ids = jnp.asarray(np.array(order, np.int32))
    again = scatter(jnp.zeros_like(cache), ids, gather(cache, ids))
    np.testing.assert_array_equal(np.asarray(again), np.asarray(cache))


@pytest.mark.usefixtures("unchecked_shapes")
def test_what_does_not_fit_is_refused() -> None:
    cache, two, three = jnp.zeros((1, 2, 4, 1, 2, 8)), jnp.zeros(2, int), jnp.zeros(3, int)
    with pytest.raises(ValueError, match=r"src\.shape=\(2,\)"):
        copy_blocks(cache, two, three)
    with pytest.raises(ValueError, match=r"ids\.shape=\(2, 3\)"):
        gather_blocks(cache, jnp.zeros((2, 3), int))
    with pytest.raises(ValueError, match=r"data\.shape=\(3, 1, 2, 1, 2, 8\)"):
        scatter_blocks(cache, two, jnp.zeros((3, 1, 2, 1, 2, 8)))
    with pytest.raises(ValueError, match="backend='mosaic' lacks this operation; 'xla'"):
        copy_blocks(cache, two, two, backend="mosaic")
