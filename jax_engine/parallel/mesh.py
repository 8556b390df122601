"""The devices that share a model, and arrays that lie on all of them.

A weight's shares lie one behind the other along the first axis of one array. That axis means
nothing: each device sees its own share alone, in the shape that its specification gives. The KV
cache is cut over its KV heads; a cache of latents, which all heads read, is on each device.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from jax_engine.errors import ConfigError
from jax_engine.parallel.collectives import AXIS

SHARE = PartitionSpec(AXIS)
WHOLE = PartitionSpec()
HEADS = 3  # the axis of the KV heads in a cache [L, kv, N, K, B, D]


def num_there() -> int:
    """How many devices this process has."""
    return len(jax.local_devices())


@dataclasses.dataclass(frozen=True)
class DeviceMesh:
    """The first `size` devices of this process, or devices that are only described.

    Attributes:
        copies_cache: Whether each has the whole KV cache, which holds latents.
        described: Devices to compile for without having them; empty: those of this process.

    Raises:
        ConfigError: There are fewer.
    """

    size: int
    copies_cache: bool = False
    described: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if max(num_there(), len(self.described)) >= self.size:
            return
        there = jax.local_devices()
        advice = "use fewer"
        if there[0].platform == "cpu":
            advice = (
                "leave distributed_executor_backend out, and the model runs in a process that has "
                f"them; or set XLA_FLAGS=--xla_force_host_platform_device_count={self.size} before "
                "JAX starts"
            )
        raise ConfigError(
            f"tensor_parallel_size must be at most the number of devices ({len(there)}), got "
            f"{self.size}: {advice}"
        )

    @cached_property
    def jax_mesh(self) -> Mesh:
        return Mesh(np.array(self.each), (AXIS,))

    @property
    def each(self) -> list[Any]:
        """The devices, by rank."""
        return list(self.described or jax.local_devices())[: self.size]

    @property
    def ranks(self) -> list[tuple[int, Any]]:
        """The devices with their ranks."""
        return list(enumerate(self.each))

    @property
    def kv_cache(self) -> PartitionSpec:
        """Where a cache [L, kv, N, K, B, D] lies."""
        return self._by_heads(HEADS)

    @property
    def blocks(self) -> PartitionSpec:
        """Where blocks [n, L, kv, K, B, D] lie."""
        return self._by_heads(HEADS)

    @property
    def kv_scales(self) -> PartitionSpec:
        """Where a cache's scales [L, kv, K] lie."""
        return self._by_heads(2)

    def _by_heads(self, axis: int) -> PartitionSpec:
        return WHOLE if self.copies_cache else PartitionSpec(*[None] * axis, AXIS)

    def placed(self, spec: PartitionSpec) -> NamedSharding:
        return NamedSharding(self.jax_mesh, spec)

    def over(self, function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Any:
        """`function`, run by each device on its shares of the arguments."""
        return jax.shard_map(
            function, mesh=self.jax_mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
        )

    def placements(self, in_specs: Any, out_specs: Any) -> dict[str, Any]:
        """Options with which `jax.jit` takes and returns arrays where they lie."""
        ins, outs = jax.tree.map(self.placed, (in_specs, out_specs), is_leaf=_is_spec)
        return {"in_shardings": ins, "out_shardings": outs}

    def compiled(
        self, function: Callable[..., Any], in_specs: Any, out_specs: Any, **options: Any
    ) -> Any:
        """`over`, to be compiled by `jax.jit` with these options."""
        options |= self.placements(in_specs, out_specs)
        return jax.jit(self.over(function, in_specs, out_specs), **options)

    def joined(self, shares: Sequence[Array]) -> Array:
        """One array of what lies on each device, without a copy."""
        first, *others = shares[0].shape
        return self._made((first * self.size, *others), SHARE, shares)

    def empty_cache(
        self, shape: tuple[int, ...], zeros: Callable[[tuple[int, ...]], Array]
    ) -> Array:
        """A KV cache of this shape over all devices: of the KV heads of each, or a copy on each."""
        heads = shape[HEADS] if self.copies_cache else shape[HEADS] // self.size
        each = []
        for device in self.each:
            with jax.default_device(device):
                each.append(zeros((*shape[:HEADS], heads, *shape[HEADS + 1 :])))
        return self._made(shape, self.kv_cache, each)

    def _made(self, shape: tuple[int, ...], spec: PartitionSpec, shares: Sequence[Array]) -> Array:
        return jax.make_array_from_single_device_arrays(shape, self.placed(spec), list(shares))

    def abstract(self, share: Any) -> jax.ShapeDtypeStruct:
        """The shape of the array that shares of one shape are joined to."""
        shape = (share.shape[0] * self.size, *share.shape[1:])
        return jax.ShapeDtypeStruct(shape, share.dtype)

    def everywhere(self, arrays: Any) -> Any:
        """Arrays of the host or of one device, copied to each of them."""
        return jax.device_put(arrays, self.placed(WHOLE))

    def first(self, tree: Any) -> Any:
        """What the first device holds of arrays that are the same on all, without a copy."""
        return jax.tree.map(lambda array: array.addressable_data(0), tree)


@dataclasses.dataclass(frozen=True)
class OneOfMany:
    """The device of a process that shares a model with other processes: it holds one share.

    Its arrays are those of its share, and its programs those of one device.
    """

    size: int
    rank: int

    @property
    def ranks(self) -> list[tuple[int, Any]]:
        """The device with its rank."""
        return [(self.rank, jax.local_devices()[0])]

    def joined(self, shares: Sequence[Array]) -> Array:
        """The one share."""
        (share,) = shares
        return share

    def abstract(self, share: Any) -> jax.ShapeDtypeStruct:
        """The shape of that share."""
        return jax.ShapeDtypeStruct(share.shape, share.dtype)


def _is_spec(value: Any) -> bool:
    return isinstance(value, PartitionSpec)


def addressable(arrays: Sequence[Array]) -> list[Array]:
    """The arrays of single devices that these consist of."""
    return [shard.data for array in arrays for shard in array.addressable_shards]
