"""The KV cache against NumPy's fancy indexing and a dictionary of slots (I45, I46, I11)."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.kv_cache import KVCache, slot_of

seeds = st.integers(0, 2**32 - 1)


def make_cache(seed: int) -> tuple[KVCache, np.random.Generator]:
    """A cache of random shape in which every block of both pools has some content."""
    rng = np.random.default_rng(seed)
    cache = KVCache(
        num_layers=int(rng.integers(1, 4)),
        num_blocks=int(rng.integers(1, 9)),
        num_kv_heads=int(rng.integers(1, 4)),
        block_size=int(rng.integers(1, 6)),
        head_dim=2,
        num_cpu_blocks=int(rng.integers(1, 9)),
    )
    cache.gpu[:] = rng.standard_normal(cache.gpu.shape)
    cache.cpu[:] = rng.standard_normal(cache.cpu.shape)
    return cache, rng


def injective_pairs(rng: np.random.Generator, sources: int, targets: int) -> list[tuple[int, int]]:
    count = int(rng.integers(0, min(sources, targets) + 1))
    chosen = rng.permutation(sources)[:count], rng.permutation(targets)[:count]
    return [(int(src), int(dst)) for src, dst in zip(*chosen, strict=True)]


@given(seed=seeds)
def test_i45_write_then_gather_is_the_identity(seed: int) -> None:
    """The slots written hold what was written, -1 writes nothing, all other slots stay."""
    cache, rng = make_cache(seed)
    before = cache.gpu.copy()
    _, _, num_blocks, num_kv_heads, block_size, head_dim = cache.gpu.shape
    slots = rng.permutation(num_blocks * block_size)[: rng.integers(0, 8)]
    slots = rng.permutation(np.append(slots, [-1, -1]))
    k, v = rng.standard_normal((2, len(slots), num_kv_heads, head_dim), np.float32)
    layer = int(rng.integers(0, len(cache.gpu)))
    cache.write(layer, k, v, slots)
    expected = before.swapaxes(3, 4).reshape(len(before), 2, -1, num_kv_heads, head_dim)
    expected[layer][:, slots[slots >= 0]] = np.stack([k, v])[:, slots >= 0]
    expected = expected.reshape(len(before), 2, num_blocks, block_size, num_kv_heads, head_dim)
    np.testing.assert_array_equal(cache.gpu, expected.swapaxes(3, 4))


@given(seed=seeds)
def test_i46_copy_and_swap_equal_fancy_indexing(seed: int) -> None:
    """Sources and destinations may overlap: all is read before anything is written."""
    cache, rng = make_cache(seed)
    num_gpu, num_cpu = cache.gpu.shape[2], cache.cpu.shape[2]
    moves: list[tuple[Callable, np.ndarray, np.ndarray, int, int]] = [
        (cache.copy, cache.gpu, cache.gpu, num_gpu, num_gpu),
        (cache.swap_out, cache.gpu, cache.cpu, num_gpu, num_cpu),
        (cache.swap_in, cache.cpu, cache.gpu, num_cpu, num_gpu),
    ]
    for move, source, target, num_sources, num_targets in moves:
        pairs = injective_pairs(rng, num_sources, num_targets)
        src, dst = np.array(pairs, dtype=int).reshape(-1, 2).T
        expected = target.copy()
        expected[:, :, dst] = source[:, :, src]
        move(pairs)
        np.testing.assert_array_equal(target, expected)


@given(seed=seeds)
def test_i11_the_order_of_a_step(seed: int) -> None:
    """Swap in, swap out, copy. A block swapped out may be the target of a copy in the same step.

    So may a block swapped in be the source of one, and both see what the order says.
    """
    cache, _ = make_cache(seed)
    gpu, cpu = cache.gpu.copy(), cache.cpu.copy()
    last, last_cpu = gpu.shape[2] - 1, cpu.shape[2] - 1
    cache.begin_step(swap_in=[(0, 0)], swap_out=[(last, last_cpu)], copies=[(0, last)])
    swapped_out = cpu[:, :, 0] if last == 0 else gpu[:, :, last]
    np.testing.assert_array_equal(cache.gpu[:, :, 0], cpu[:, :, 0])
    np.testing.assert_array_equal(cache.gpu[:, :, last], cpu[:, :, 0])
    np.testing.assert_array_equal(cache.cpu[:, :, last_cpu], swapped_out)


def test_slots_start_as_not_a_number() -> None:
    cache = KVCache(num_layers=2, num_blocks=3, num_kv_heads=1, block_size=4, head_dim=2)
    assert cache.gpu.shape == (2, 2, 3, 1, 4, 2) and cache.gpu.dtype == np.float32
    assert np.isnan(cache.gpu).all() and cache.cpu.size == 0


@given(table=st.permutations(range(5)), block_size=st.integers(1, 9))
def test_slots_of_distinct_positions_are_distinct(table: list[int], block_size: int) -> None:
    slots = [slot_of(table, p, block_size) for p in range(5 * block_size)]
    assert sorted(slots) == list(range(5 * block_size))


@pytest.mark.parametrize("slot", [-2, 6])
def test_a_slot_outside_of_the_pool_is_refused_before_anything_is_written(slot: int) -> None:
    cache = KVCache(num_layers=1, num_blocks=3, num_kv_heads=1, block_size=2, head_dim=2)
    kv = np.ones((2, 1, 2), np.float32)
    with pytest.raises(IndexError, match=f"slot {slot} is not -1 nor one of 0..5"):
        cache.write(0, kv, kv, np.array([0, slot]))
    assert np.isnan(cache.gpu).all()


@pytest.mark.parametrize("pair", [(-1, 0), (3, 0), (0, -1), (0, 2)])
def test_a_block_outside_of_a_pool_is_refused_before_anything_is_moved(
    pair: tuple[int, int],
) -> None:
    cache = KVCache(
        num_layers=1, num_blocks=3, num_kv_heads=1, block_size=2, head_dim=2, num_cpu_blocks=2
    )
    cache.gpu[:] = 1.0
    with pytest.raises(IndexError, match="the pools have 3 and 2 blocks"):
        cache.swap_out([(0, 0), pair])
    assert np.isnan(cache.cpu).all()
