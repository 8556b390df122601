"""The KV cache against NumPy's fancy indexing and a dictionary of slots (I45, I46, I11)."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.attention import dequantize
from reference.kv_cache import KVCache, slot_of
from reference.transformer import Transformer, TransformerConfig, weight_shapes

seeds = st.integers(0, 2**32 - 1)
TINY = TransformerConfig(8, 6, 8, 2, 2, 1, head_dim=4)


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


@given(seed=seeds, kind=st.sampled_from(["int8", "fp8"]), alone=st.booleans())
def test_i45_an_8_bit_cache_holds_the_nearest_number_that_it_has(
    seed: int, kind: str, alone: bool
) -> None:
    """Against `ml_dtypes` and NumPy's integers; of keys and values, or of keys alone."""
    rng = np.random.default_rng(seed)
    scales = rng.uniform(0.003, 0.02, (2, 1 if alone else 2, 3)).astype(np.float32)
    cache = KVCache(
        num_layers=2, num_blocks=2, num_kv_heads=3, block_size=4, head_dim=2, values_in_keys=alone,
        scales=scales, kind=kind,
    )  # fmt: skip
    new = rng.standard_normal((2, 5, 3, 2), np.float32)
    slots = np.array([7, -1, 0, 3, 5])
    cache.write(1, new[0], None if alone else new[1], slots)
    assert np.isnan(cache.gpu[0]).all() and np.isnan(cache.gpu[1, :, 0, :, 1:3]).all()
    for which in range(len(scales[1])):
        quotient = new[which] / scales[1, which][:, None]
        if kind == "int8":
            stored = np.rint(quotient).clip(-128, 127)
        else:
            stored = quotient.clip(-448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
        for token, slot in enumerate(slots):
            if slot >= 0:
                found = cache.gpu[1, which, slot // 4, :, slot % 4]
                np.testing.assert_array_equal(found, stored[token])


def test_what_was_quantised_is_read_back_to_half_a_step() -> None:
    """`dequantize` reads it, as attention does. The largest key is a code of 100."""
    rng = np.random.default_rng(0)
    keys = rng.standard_normal((6, 2, 4), np.float32)
    scales = np.abs(keys).max(axis=(0, 2)) / 100
    both = np.broadcast_to(scales, (1, 2, 2))
    cache = KVCache(
        num_layers=1, num_blocks=1, num_kv_heads=2, block_size=6, head_dim=4, scales=both
    )
    cache.write(0, keys, keys * 9, np.arange(6))
    read = dequantize(cache.gpu[0, 0, 0].swapaxes(0, 1), scales)
    assert (np.abs(read - keys) <= scales[:, None] * 0.5001).all()
    assert np.abs(cache.gpu[0, 0]).max() == 100 and np.abs(cache.gpu[0, 1]).max() in (127, 128)


def test_a_decoder_reads_what_an_8_bit_cache_holds() -> None:
    """Numbers that 8 bits hold exactly make no difference; coarse ones do."""
    path = weight_shapes(TINY)
    rng = np.random.default_rng(3)
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in path.items()}
    decoder, tokens = Transformer(TINY, weights), np.arange(5)

    def run(**options: Any) -> np.ndarray:
        cache = KVCache(**TINY.cache_sizes(), num_blocks=1, block_size=5, **options)
        one = np.array([[0]]), np.array([5]), np.array([0, 5])
        return decoder.forward(tokens, tokens, cache, *one, tokens)

    shape = (TINY.num_hidden_layers, 1 if TINY.latent else 2, 1)
    fine, coarse = np.full(shape, 0.05, np.float32), np.full(shape, 1.0, np.float32)
    plain, close, far = run(), run(scales=fine), run(scales=coarse)
    assert 0 < np.abs(close - plain).max() < np.abs(far - plain).max()
