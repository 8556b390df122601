"""Moves of blocks against NumPy, in lists of all lengths; and what the cache takes of memory."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine.errors import OutOfMemoryError
from jax_engine.models.registry import config_from_hf
from jax_engine.operations import Device
from jax_engine.worker import kv_cache as module
from jax_engine.worker.kv_cache import BLOCKS_A_CALL, KVCache, block_bytes
from tests.golden import tiny_checkpoints as tiny

CONFIG = config_from_hf(tiny.CONFIGS["plain"])
NUM_BLOCKS, NUM_CPU_BLOCKS, BLOCK_SIZE = 23, 19, 4
LENGTHS = (0, 1, BLOCKS_A_CALL - 1, BLOCKS_A_CALL, BLOCKS_A_CALL + 1, 2 * BLOCKS_A_CALL + 2)


def new_cache(dtype: Any = jnp.float32) -> KVCache:
    return KVCache(
        CONFIG,
        num_blocks=NUM_BLOCKS,
        num_cpu_blocks=NUM_CPU_BLOCKS,
        block_size=BLOCK_SIZE,
        dtype=dtype,
    )


def filled(rng: np.random.Generator) -> tuple[KVCache, np.ndarray, np.ndarray]:
    """A cache, and what is in it: on the device [L, 2, N, K, B, D], on the host block by block."""
    cache = new_cache()
    device = rng.random(cache.shape).astype(np.float32)
    cache.array = jnp.array(device)  # a copy: it is donated
    host = rng.random((NUM_CPU_BLOCKS, *cache.host.block_shape)).astype(np.float32)
    cache.host.write(range(NUM_CPU_BLOCKS), host)
    return cache, device, host


def check(cache: KVCache, device: np.ndarray, host: np.ndarray) -> None:
    np.testing.assert_array_equal(cache.array, device)
    np.testing.assert_array_equal(cache.host.read(range(NUM_CPU_BLOCKS)), host)


def pairs(rng: np.random.Generator, sources: int, targets: int, count: int) -> Any:
    """Sources may be the same and targets not; block 0 is among both."""
    found = rng.permutation(np.arange(1, targets))[:count]
    found[:1] = 0
    read = rng.integers(0, sources, count)
    read[1:2] = 0
    return list(zip(read.tolist(), found.tolist(), strict=True))


@pytest.mark.parametrize("count", LENGTHS)
def test_moves_move_the_blocks_they_name(count: int) -> None:
    rng = np.random.default_rng(count)
    cache, device, host = filled(rng)
    out = pairs(rng, NUM_BLOCKS, NUM_CPU_BLOCKS, count)
    cache.swap_out(out)
    for gpu, cpu in out:
        host[cpu] = device[:, :, gpu]
    check(cache, device, host)
    into = pairs(rng, NUM_CPU_BLOCKS, NUM_BLOCKS, count)
    cache.swap_in(into)
    for cpu, gpu in into:
        device[:, :, gpu] = host[cpu]
    check(cache, device, host)
    blocks = rng.permutation(NUM_BLOCKS)
    copies = [(int(s), int(d)) for s, d in zip(blocks[:11], blocks[11:22], strict=True)][:count]
    cache.copy(copies)
    for source, destination in copies:
        device[:, :, destination] = device[:, :, source]
    check(cache, device, host)


def test_a_block_is_read_and_put_back() -> None:
    cache, device, host = filled(np.random.default_rng(3))
    held = {block: cache.read(block) for block in (0, 5)}
    np.testing.assert_array_equal(held[5][0], device[:, :, 5])
    cache.copy([(1, 0), (2, 5)])
    for block, data in held.items():
        cache.write(block, data)
    check(cache, device, host)


def test_a_new_cache_is_zeros_of_the_size_that_was_told() -> None:
    for dtype in (jnp.float32, jnp.bfloat16):
        cache = new_cache(dtype)
        assert cache.array.shape == cache.shape == (2, 2, NUM_BLOCKS, 2, BLOCK_SIZE, 8)
        assert cache.array.dtype == cache.host.dtype == dtype and not np.asarray(cache.array).any()
        assert cache.array.nbytes == NUM_BLOCKS * block_bytes(CONFIG, BLOCK_SIZE, dtype)
        assert cache.host.block_shape == (2, 2, 2, BLOCK_SIZE, 8)
        assert len(cache.host) == NUM_CPU_BLOCKS and cache.host.num_bytes == 0


@pytest.mark.parametrize("in_host_memory", [False, True])
def test_what_cannot_fit_is_refused_before_it_is_asked_for(
    in_host_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(what: str, num_bytes: int) -> None:
        raise OutOfMemoryError(f"{what} of {num_bytes} bytes")

    monkeypatch.setattr(module, "check_fits", refuse)
    device = Device("cpu", in_host_memory=in_host_memory)
    monkeypatch.setattr(module, "this_device", lambda: device)
    if in_host_memory:
        size = NUM_BLOCKS * block_bytes(CONFIG, BLOCK_SIZE, jnp.float32)
        with pytest.raises(OutOfMemoryError, match=f"^the KV cache of {size} bytes$"):
            new_cache()
    else:
        assert new_cache().array.shape[2] == NUM_BLOCKS


def test_only_what_was_lost_is_made_anew() -> None:
    cache, device, host = filled(np.random.default_rng(4))
    cache.recover()
    check(cache, device, host)
    cache.array.delete()
    cache.recover()
    check(cache, np.zeros_like(device), host)
    assert cache.array.dtype == jnp.float32


def test_after_warming_up_no_move_compiles() -> None:
    programs: list[Any] = [module._copy, module._gather, module._scatter]
    for program in programs:
        program.clear_cache()
    cache, device, host = filled(np.random.default_rng(5))
    cache.warm_up()
    assert [program._cache_size() for program in programs] == [1, 1, 1]
    check(cache, device, host)
    cache.swap_out([(1, 2)])
    cache.swap_in([(2, 1)])
    cache.copy([(1, 1)])
    assert [program._cache_size() for program in programs] == [1, 1, 1]
