"""The KV cache on the device, its swap space in host memory, and the copies between blocks."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Shaped

from jax_engine.host_memory import allocating, check_fits
from jax_engine.models.config import ModelConfig
from jax_engine.operations import device_operations, this_device
from jax_engine.parallel.mesh import WHOLE, DeviceMesh
from jax_engine.worker.host_blocks import HostBlocks
from pallas_kernels import copy_blocks, gather_blocks, scatter_blocks

BLOCKS_A_CALL = 8  # one fixed size, so that copies and swaps compile to three programs


def kv_cache_shape(config: ModelConfig, num_blocks: int, block_size: int) -> tuple[int, ...]:
    """[L, 2, N, K, B, D]; [L, 1, N, 1, B, D] for latents, which are keys and values in one."""
    kv, heads, size = config.spec.cached
    return (config.spec.num_layers, kv, num_blocks, heads, block_size, size)


def block_bytes(config: ModelConfig, block_size: int, dtype: DTypeLike) -> int:
    """Bytes of one block in all layers."""
    return int(np.prod(kv_cache_shape(config, 1, block_size))) * jnp.dtype(dtype).itemsize


class KVCache:
    """The paged cache (`array`, donated to each step) and the blocks swapped out to the host.

    Args:
        num_cpu_blocks: Number of host blocks (`host`). Memory is allocated at the first swap-out.
        mesh: The devices that share the cache; None: the default device has all.

    Raises:
        OutOfMemoryError: The system gave no memory for the array.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        num_blocks: int,
        num_cpu_blocks: int,
        block_size: int,
        dtype: DTypeLike,
        mesh: DeviceMesh | None = None,
    ) -> None:
        self.mesh = mesh
        self._copy, self._gather, self._scatter = _programs(mesh)
        shape = kv_cache_shape(config, num_blocks, block_size)
        self.shape, self.dtype = shape, dtype
        self.array: Shaped[Array, "L kv N K B D"] = _zeros(shape, dtype, mesh)
        self.host = HostBlocks(num_cpu_blocks, (*shape[:2], *shape[3:]), jnp.dtype(dtype))

    def recover(self) -> None:
        """Makes a new array if a failed step destroyed the old one."""
        try:
            self.array.block_until_ready()
        except RuntimeError:  # donated to the failed step, or its failed result
            self.array = _zeros(self.shape, self.dtype, self.mesh)

    def warm_up(self) -> None:
        """Compiles the three operations below by running them on no blocks."""
        sources, nowhere = np.zeros(BLOCKS_A_CALL, np.int32), _columns([])[1]
        self.array = self._copy(self.array, sources, nowhere)
        data = np.zeros((BLOCKS_A_CALL, *self.host.block_shape), self.host.dtype)
        self.array = self._scatter(self.array, nowhere, data)
        np.asarray(self._gather(self.array, sources))

    def swap_in(self, pairs: list[tuple[int, int]]) -> None:
        """Copies host blocks to device blocks; pairs of (CPU block, GPU block)."""
        for part in _parts(pairs):
            cpu, gpu = _columns(part)
            data = np.zeros((len(gpu), *self.host.block_shape), self.host.dtype)
            data[: len(part)] = self.host.read(cpu[: len(part)].tolist())
            self.array = self._scatter(self.array, gpu, data)

    def swap_out(self, pairs: list[tuple[int, int]]) -> None:
        """Copies device blocks to host blocks; pairs of (GPU block, CPU block)."""
        for part in _parts(pairs):
            gpu, cpu = _columns(part)
            data = np.asarray(self._gather(self.array, np.maximum(gpu, 0)))
            self.host.write(cpu[: len(part)].tolist(), data[: len(part)])

    def read(self, block: int) -> np.ndarray:
        """The contents of a device block, as `write` takes them."""
        blocks, _ = _columns([(block, block)])
        return np.asarray(self._gather(self.array, np.maximum(blocks, 0)))

    def write(self, block: int, data: np.ndarray) -> None:
        """Writes back what `read` returned."""
        blocks, _ = _columns([(block, block)])
        self.array = self._scatter(self.array, blocks, data)

    def copy(self, pairs: list[tuple[int, int]]) -> None:
        """Copy-on-write: copies device blocks to device blocks; pairs of (source, destination)."""
        for part in _parts(pairs):
            src, dst = _columns(part)
            self.array = self._copy(self.array, np.maximum(src, 0), dst)


def _zeros(shape: tuple[int, ...], dtype: DTypeLike, mesh: DeviceMesh | None) -> Array:
    """Allocates zeros. A CPU reserves addresses at once, and takes memory when a page is used."""
    num_bytes = math.prod(shape) * jnp.dtype(dtype).itemsize
    num_bytes *= mesh.size if mesh and mesh.copies_cache else 1
    if this_device().in_host_memory:
        check_fits("the KV cache", num_bytes)
    with allocating("the KV cache", num_bytes):
        zeros = functools.partial(device_operations().zeros, dtype=dtype)
        array = mesh.empty_cache(shape, zeros) if mesh else zeros(shape)
        ready: Array = array.block_until_ready()
        return ready


def _parts(pairs: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    return [pairs[i : i + BLOCKS_A_CALL] for i in range(0, len(pairs), BLOCKS_A_CALL)]


def _columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Two int32 columns, padded with -1."""
    columns = np.full((2, BLOCKS_A_CALL), -1, np.int32)
    columns[:, : len(pairs)] = np.array(pairs, np.int32).reshape(-1, 2).T
    return columns[0], columns[1]


@functools.cache
def _programs(mesh: DeviceMesh | None) -> tuple[Any, Any, Any]:
    """The copies between blocks of one device, or of several: each copies its own share."""
    if mesh is None:
        return _copy, _gather, _scatter
    cache, blocks, ids = mesh.kv_cache, mesh.blocks, WHOLE
    return (
        mesh.compiled(copy_blocks, (cache, ids, ids), cache, donate_argnums=0),
        mesh.compiled(gather_blocks, (cache, ids), blocks),
        mesh.compiled(scatter_blocks, (cache, ids, blocks), cache, donate_argnums=0),
    )


@functools.partial(jax.jit, donate_argnums=0)
def _copy(kv_cache: Array, src: Array, dst: Array) -> Array:
    return copy_blocks(kv_cache, src, dst)


@jax.jit
def _gather(kv_cache: Array, ids: Array) -> Array:
    return gather_blocks(kv_cache, ids)


@functools.partial(jax.jit, donate_argnums=0)
def _scatter(kv_cache: Array, ids: Array, data: Array) -> Array:
    return scatter_blocks(kv_cache, ids, data)
