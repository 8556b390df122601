"""Sizes of tiles, warps and stages of the GPU kernels, chosen by device and shape.

`tuning_table.json` beside this file holds the fastest configurations that were measured. The
command `python -m benchmarks.tune_kernels` writes it on a GPU:

    {"NVIDIA H200": {"triton_decode": {"128 16 bfloat16": {"block_kv": 64, ...}}}}

The second level names the kernel; the third one head dimension, block size and dtype of the cache.
A device or shape that is not in the table gets a default that fits every device of its kind.
"""

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import jax.numpy as jnp

TABLE_FILE = Path(__file__).with_name("tuning_table.json")


def _power_of_two(config: Any, name: str, least: int) -> None:
    value = getattr(config, name)
    if type(value) is not int or value < least or value & (value - 1):
        raise ValueError(
            f"{type(config).__name__}: {name}={value!r} must be a power of 2 >= {least}"
        )


def _between(config: Any, name: str, least: int, most: int) -> None:
    value = getattr(config, name)
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{type(config).__name__}: {name}={value!r} must be in {least}..{most}")


def _splits(config: Any) -> None:
    if config.splits is not None:
        _between(config, "splits", 1, 1024)


@dataclass(frozen=True)
class TritonDecodeConfig:
    """Attributes:
    block_kv: tokens of context a program takes at a time.
    num_warps: warps of a program.
    num_stages: loads in flight, the current one included.
    splits: programs that share one context; None chooses by the number of SMs.
    """

    block_kv: int = 64
    num_warps: int = 4
    num_stages: int = 3
    splits: int | None = None

    def __post_init__(self) -> None:
        _power_of_two(self, "block_kv", 16)
        _power_of_two(self, "num_warps", 1)
        _between(self, "num_stages", 1, 8)
        _splits(self)


@dataclass(frozen=True)
class TritonPrefillConfig:
    """Attributes:
    block_q: rows of a program at most: queries of a tile, times query heads.
    block_kv: tokens of context a program takes at a time.
    num_warps: warps of a program.
    num_stages: loads in flight, the current one included.
    """

    block_q: int = 64
    block_kv: int = 64
    num_warps: int = 4
    num_stages: int = 3

    def __post_init__(self) -> None:
        _power_of_two(self, "block_q", 16)
        _power_of_two(self, "block_kv", 16)
        _power_of_two(self, "num_warps", 1)
        _between(self, "num_stages", 1, 8)


@dataclass(frozen=True)
class MosaicDecodeConfig:
    """Attributes:
    block_kv: tokens of context in one stage of the ring in shared memory.
    stages: stages of the ring.
    splits: programs that share one context; None chooses by the number of SMs.
    """

    block_kv: int = 64
    stages: int = 3
    splits: int | None = None

    def __post_init__(self) -> None:
        _power_of_two(self, "block_kv", 64)
        _between(self, "stages", 1, 16)
        _splits(self)


@dataclass(frozen=True)
class MosaicPrefillConfig:
    """Attributes:
    block_q: rows of a tile, each one query token and one query head; 64 a warpgroup.
    block_kv: tokens of context in one stage of the ring in shared memory.
    stages: stages of the ring.
    ping_pong: two warpgroups take turns: one multiplies while the other one computes exponentials.
        It takes two stages: the second warpgroup still reads one when the first one waits for the
        next.
    """

    block_q: int = 128
    block_kv: int = 128
    stages: int = 2
    ping_pong: bool = False

    def __post_init__(self) -> None:
        if self.block_q not in (64, 128, 192):
            raise ValueError(
                f"MosaicPrefillConfig: block_q={self.block_q!r} must be 64, 128 or 192"
            )
        _power_of_two(self, "block_kv", 64)
        _between(self, "stages", 1, 16)
        possible = self.block_q == 128 and self.stages >= 2
        if type(self.ping_pong) is not bool or (self.ping_pong and not possible):
            raise ValueError(
                f"MosaicPrefillConfig: ping_pong={self.ping_pong!r} must be False, or True with "
                f"block_q=128 and stages >= 2, not {self.block_q} and {self.stages}"
            )


Config = TritonDecodeConfig | TritonPrefillConfig | MosaicDecodeConfig | MosaicPrefillConfig
Table = Mapping[tuple[str, str, int, int, str], Config]

_instead: Table | None = None

KERNELS: dict[str, type[Config]] = {
    "triton_decode": TritonDecodeConfig,
    "triton_prefill": TritonPrefillConfig,
    "mosaic_decode": MosaicDecodeConfig,
    "mosaic_prefill": MosaicPrefillConfig,
}


def lookup(
    kernel: str,
    device_kind: str,
    head_dim: int,
    block_size: int,
    dtype: Any,
    wave_size: int = 32,
) -> Config:
    """The configuration of a kernel on a device: from the table, else the default.

    Args:
        kernel: one of `KERNELS`.
        device_kind: as `jax.Device.device_kind` says it, such as "NVIDIA H200".
        head_dim: D, elements of a head.
        block_size: B, tokens of a block of the cache.
        dtype: element type of the cache.
        wave_size: threads of the device's warps, by which a default is chosen.

    Raises:
        ValueError: no such kernel.
    """
    shape = (head_dim, block_size, jnp.dtype(dtype).name)
    table = _table() if _instead is None else _instead
    found = table.get((device_kind, kernel, *shape))
    return default(kernel, head_dim, dtype, wave_size) if found is None else found


def default(kernel: str, head_dim: int, dtype: Any, wave_size: int = 32) -> Config:
    """The configuration of a shape that nobody measured.

    Raises:
        ValueError: no such kernel.
    """
    if kernel not in KERNELS:
        raise ValueError(f"{kernel=} does not exist; use one of {', '.join(KERNELS)}")
    if wave_size == 64 and kernel in WAVES_OF_64:
        return WAVES_OF_64[kernel](head_dim, jnp.dtype(dtype).itemsize)
    if kernel == "triton_decode":
        return _triton_decode(head_dim, jnp.dtype(dtype).itemsize)
    if kernel == "triton_prefill":
        return _triton_prefill(head_dim, jnp.dtype(dtype).itemsize)
    if kernel == "mosaic_decode":
        return MosaicDecodeConfig()
    # The float32 sums of a tile, and its keys and values, grow with the head: halve the tile
    # where they would leave the registers or the shared memory.
    return MosaicPrefillConfig(block_kv=128 if head_dim <= 128 else 64, ping_pong=True)


# The largest that `python -m pallas_kernels.aot` found without spills on Ampere and Hopper, with
# every option, and that fit into the 99 KiB of shared memory of Ada. Products of float32 are not
# made by tensor cores, and widening 8 bits goes through registers: both need smaller steps.
def _triton_decode(head_dim: int, itemsize: int) -> TritonDecodeConfig:
    if itemsize == 4:
        return TritonDecodeConfig(block_kv=32 if head_dim <= 128 else 16, num_stages=2)
    if itemsize == 1:
        return TritonDecodeConfig(block_kv=32, num_stages=4)
    return TritonDecodeConfig(block_kv=64 if head_dim <= 128 else 32)


def _triton_prefill(head_dim: int, itemsize: int) -> TritonPrefillConfig:
    if itemsize == 4:
        if head_dim <= 64:
            return TritonPrefillConfig(block_q=64, block_kv=32, num_warps=8, num_stages=2)
        block_q = 64 if head_dim <= 192 else 32
        return TritonPrefillConfig(block_q=block_q, block_kv=16, num_warps=16, num_stages=2)
    if head_dim <= 128:
        return TritonPrefillConfig(block_q=128, block_kv=16 if itemsize == 1 else 32, num_warps=8)
    block_q = 128 if head_dim <= 192 and itemsize == 2 else 64
    return TritonPrefillConfig(block_q=block_q, block_kv=16, num_warps=8)


# The same for AMD's MI300X, whose warps have 64 threads: of the tiles that were compiled without
# spills and with every option, those of which the most warps fit onto a compute unit at a time, by
# its registers and its 64 KiB of local memory; among prefills with as many warps the largest tile.
# Nobody measured them. One stage of loads, since the compiler fails with two at a loop in a loop,
# which a batch-invariant decode has, and since two take more registers.
def _decode_of_64(head_dim: int, itemsize: int) -> TritonDecodeConfig:
    block_kv = 64 if head_dim <= 64 else 32 if head_dim <= 128 else 16
    return TritonDecodeConfig(max(block_kv // (2 if itemsize == 4 else 1), 16), num_stages=1)


def _prefill_of_64(head_dim: int, itemsize: int) -> TritonPrefillConfig:
    if itemsize == 4:
        block_q, num_warps = (64, 8) if head_dim <= 128 else (16, 4)
        return TritonPrefillConfig(block_q, 16, num_warps, num_stages=1)
    if head_dim <= 128:
        return TritonPrefillConfig(block_q=128, block_kv=32, num_warps=4, num_stages=1)
    return TritonPrefillConfig(block_q=64, block_kv=16, num_warps=4, num_stages=1)


WAVES_OF_64: dict[str, Callable[[int, int], Config]] = {
    "triton_decode": _decode_of_64,
    "triton_prefill": _prefill_of_64,
}


@contextmanager
def instead_of_the_file(table: Table) -> Iterator[None]:
    """Look up in this table meanwhile: what `load` returns, or one entry to be measured.

    What JAX has compiled before stays as it is; `jax.clear_caches` forgets it.
    """
    global _instead
    _instead = table
    try:
        yield
    finally:
        _instead = None


@functools.cache
def _table() -> Table:
    return load(TABLE_FILE)


def load(path: Path) -> Table:
    """The table in a file, every entry checked.

    Raises:
        ValueError: not JSON, or an entry that is no configuration; says which.
    """
    table: dict[tuple[str, str, int, int, str], Config] = {}
    for device, kernels in json.loads(path.read_text()).items():
        for kernel, shapes in kernels.items():
            for shape, values in shapes.items():
                where = f"{path.name}: {device!r}, {kernel!r}, {shape!r}"
                try:
                    table[(device, kernel, *_shape(shape))] = _config(kernel, values)
                except (TypeError, ValueError) as error:
                    raise ValueError(f"{where}: {error}") from error
    return table


def _shape(text: str) -> tuple[int, int, str]:
    head_dim, block_size, dtype = text.split(" ")
    return int(head_dim), int(block_size), dtype


def _config(kernel: str, values: Any) -> Config:
    if kernel not in KERNELS:
        raise ValueError(f"no such kernel; use one of {', '.join(KERNELS)}")
    known = {field.name for field in fields(KERNELS[kernel])}
    if not isinstance(values, dict) or set(values) != known:
        raise ValueError(f"expected exactly {sorted(known)}, not {values!r}")
    return KERNELS[kernel](**values)
