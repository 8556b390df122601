"""The KV cache on the device: its blocks, the copies between them and swap space, and its scales.

A quantised cache has a scale for each layer, keys or values, and KV head. A key or value is divided
by its scale when it is written, and multiplied by it when it is read. A scale comes from the
checkpoint, which may have one for keys and one for values of each layer. Else it is 1 in a cache of
float8_e4m3fn, as in vLLM: these floats have a range of their own. Integers have none. So the scales
of an int8 cache are measured: the model reads one made-up text, always the same, and each head's
largest number becomes the code LARGEST / HEADROOM.

Swap space (§4.5) is the contents of blocks that were swapped out, in the host's memory. It is
allocated in pieces. Each piece is allocated when one of its blocks is first needed: most engines
never swap, and the whole space may exceed the address limit of `ulimit -v`.
"""

import functools
import logging
import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Float32, Int, Shaped

from jax_engine.errors import OutOfMemoryError
from jax_engine.host_memory import allocating, check_fits
from jax_engine.layers.batch import one_sequence
from jax_engine.models.model_config import ModelConfig
from jax_engine.models.model_loader import LoadedModel
from jax_engine.operations import device_operations, this_device
from jax_engine.parallel.mesh import SHARE, WHOLE, DeviceMesh
from pallas_kernels import copy_blocks, gather_blocks, scatter_blocks

logger = logging.getLogger("jax_engine")
PIECE_BYTES = 64 << 20
HEADROOM_BYTES = 256 << 20  # kept free for the rest of the process under an address limit
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

    def read_blocks(self, blocks: list[int]) -> list[Array]:
        """As `BlockMover`. Waits for nothing."""
        columns = [_columns([(one, one) for one in part])[0] for part in _parts_of(blocks)]
        return [self._gather(self.array, np.maximum(one, 0)) for one in columns]

    def write_blocks(self, blocks: list[int], contents: list[np.ndarray]) -> None:
        """As `BlockMover`."""
        first, shape, dtype = 0, self.host.block_shape, self.host.dtype
        for part in contents:
            count = len(part)
            gpu, _ = _columns([(one, one) for one in blocks[first : first + count]])
            if count < BLOCKS_A_CALL:
                part = np.concatenate(
                    [part, np.zeros((BLOCKS_A_CALL - count, *part.shape[1:]), np.uint8)]
                )
            data = part.view(dtype).reshape(BLOCKS_A_CALL, *shape)
            self.array = self._scatter(self.array, gpu, data)
            first += count

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


def _parts_of(blocks: list[int]) -> list[list[int]]:
    return [blocks[i : i + BLOCKS_A_CALL] for i in range(0, len(blocks), BLOCKS_A_CALL)]


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


LARGEST = {"float8_e4m3fn": 448.0, "int8": 127.0}
HEADROOM = 1.25  # real text has larger numbers than the made-up one; what is still larger is cut
CALIBRATION_TOKENS = 256
SMALLEST = 1e-6  # the scale of a head whose numbers are all zero


def scales_shape(config: ModelConfig, cache_dtype: DTypeLike) -> jax.ShapeDtypeStruct | None:
    """[L, kv, K] in float32; None for a cache that is not quantised."""
    if jnp.dtype(cache_dtype).name not in LARGEST:
        return None
    layers, kv, _, heads, _, _ = kv_cache_shape(config, 1, 1)
    return jax.ShapeDtypeStruct((layers, kv, heads), jnp.float32)


def scales_for(
    model: LoadedModel, cache_dtype: DTypeLike, *, dtype: DTypeLike, max_model_len: int
) -> jax.Array | None:
    """The scales of a cache for a loaded model; None if it is not quantised.

    Args:
        dtype: The dtype of activations.
    """
    shape = scales_shape(model.config, cache_dtype)
    if shape is None:
        return None
    name = jnp.dtype(cache_dtype).name
    known = np.full(shape.shape, np.nan, np.float32)
    if model.kv_scales is not None:  # those of checkpoints are for float8
        known[...] = model.kv_scales * (LARGEST["float8_e4m3fn"] / LARGEST[name])
    missing = np.isnan(known)
    if name == "int8" and missing.any():
        largest = _largest(model, dtype, min(CALIBRATION_TOKENS, max_model_len))
        measured = np.maximum(largest * (HEADROOM / LARGEST[name]), SMALLEST)
        known = np.where(missing, measured, known)
    return jnp.asarray(np.where(np.isnan(known), 1.0, known), jnp.float32)


def calibration_text(vocab_size: int, length: int) -> Int[np.ndarray, " T"]:
    """Token ids that jump through the whole vocabulary."""
    return (np.arange(length, dtype=np.uint64) * 2654435761 % 2**32 % vocab_size).astype(np.int32)


def _largest(model: LoadedModel, dtype: DTypeLike, length: int) -> Float32[np.ndarray, "L kv K"]:
    """The largest magnitude of each head's keys and values in the calibration text."""
    spec = model.config.spec
    tokens = jnp.asarray(calibration_text(model.config.vocab_size, length))

    def measure(graphdef_and_params: Any, tokens: Any) -> Float[jax.Array, "L kv K"]:
        decoder = nnx.merge(*graphdef_and_params)
        attentions = decoder.spec.attentions  # of one device's share
        batch, cache = one_sequence(attentions, spec.num_layers, length, dtype)
        _, cache = decoder(tokens, batch, cache)
        largest: jax.Array = jnp.abs(cache.astype(jnp.float32)).max(axis=(2, 4, 5))
        return largest

    options: dict[str, Any] = {"compiler_options": this_device().compiler_options}
    if model.mesh is None:
        run = jax.jit(measure, **options)
    else:
        run = model.mesh.compiled(measure, (SHARE, WHOLE), model.mesh.kv_scales, **options)
    return np.asarray(run((model.graphdef, model.params), tokens))


class HostBlocks:
    """Blocks 0 .. num_blocks - 1 in host memory. Each holds what was last written to it.

    Args:
        block_shape: The shape of one block, [L, kv, K, B, D].
    """

    def __init__(self, num_blocks: int, block_shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.block_shape, self.dtype = block_shape, dtype
        self._num_blocks = num_blocks
        block_bytes = int(np.prod(block_shape)) * dtype.itemsize
        self._per_piece = max(1, PIECE_BYTES // block_bytes)
        self._piece_bytes = self._per_piece * block_bytes
        self._pieces: dict[int, np.ndarray] = {}
        self._says_full = True

    def __len__(self) -> int:
        return self._num_blocks

    @property
    def num_bytes(self) -> int:
        """Bytes of the pieces allocated so far."""
        return sum(piece.nbytes for piece in self._pieces.values())

    def make_room(self, blocks: Iterable[int]) -> bool:
        """Allocates the pieces of these blocks. Returns False if memory runs out."""
        try:
            for block in blocks:
                self._piece(block)
        except OutOfMemoryError as error:
            if self._says_full:  # log this once, not at every attempt
                self._says_full = False
                logger.warning("%s What is preempted is computed again.", error)
            return False
        return True

    def read(self, blocks: Sequence[int]) -> np.ndarray:
        """Copies of the blocks, [n, L, kv, K, B, D]."""
        out = np.empty((len(blocks), *self.block_shape), self.dtype)
        for copy, block in zip(out, blocks, strict=True):
            copy[...] = self._piece(block)[block % self._per_piece]
        return out

    def write(self, blocks: Sequence[int], data: np.ndarray) -> None:
        """Fills the blocks from [n, L, kv, K, B, D]. Raises OutOfMemoryError."""
        for block, values in zip(blocks, data, strict=True):
            self._piece(block)[block % self._per_piece] = values

    def _piece(self, block: int) -> np.ndarray:
        index = block // self._per_piece
        piece = self._pieces.get(index)
        if piece is None:
            check_fits("swapped blocks and what must stay free", self._needed_bytes())
            with allocating("swapped blocks", self._piece_bytes):
                piece = np.empty((self._per_piece, *self.block_shape), self.dtype)
            self._pieces[index] = piece
        return piece

    def _needed_bytes(self) -> int:
        return self._piece_bytes + HEADROOM_BYTES
