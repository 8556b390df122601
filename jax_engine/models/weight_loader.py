"""Puts weights into the decoder's arrays on the device: a checkpoint's, or random ones.

A leaf is one of the decoder's parameters. Leaves are loaded one at a time.
To limit peak host memory, they are built largest first, and each is moved to the device and freed
before the next. A leaf of all layers is made layer by layer, so that packing needs the numbers of
few layers at a time. The peak stays well under 1.3 times the weights. On a CPU device the aligned
buffer *is* the device array (no copy is made).

Random weights are the same for the same seed, so that tests and benchmarks need no download.

Where devices of this process share the model, each gets its own rows and columns. One device is
filled after another, so that the host never holds more than one leaf of one share.
"""

import functools
import math
import os
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_engine.host_memory import allocating
from jax_engine.model_spec import ModelSpec
from jax_engine.models import huge_pages
from jax_engine.models.leaves import Leaf
from jax_engine.parallel.cuts import Cut, cuts_of
from jax_engine.parallel.mesh import DeviceMesh, OneOfMany
from jax_engine.weights.format import VALUES
from jax_engine.weights.tensor_source import TensorSource
from jax_engine.weights.transforms import Transform, Words, elements

LeafArrays = dict[str, jax.Array]


def load_leaves(
    source: TensorSource, leaves: Mapping[str, Leaf], transforms: Mapping[str, Transform]
) -> dict[str, LeafArrays]:
    """All leaves as device arrays, from tensors that passed `check_tensors`.

    Raises:
        WeightsError: A tensor is unreadable.
        OutOfMemoryError: There was no memory for a leaf.
    """
    arrays: dict[str, LeafArrays] = {}
    largest_first = sorted(leaves, key=lambda name: -leaves[name].num_bytes)
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        for name in largest_first:
            with allocating(f"the weights {name}", leaves[name].num_bytes):
                arrays[name] = _load_leaf(source, leaves[name], transforms[name], pool)
    return arrays


def _load_leaf(
    source: TensorSource, leaf: Leaf, transform: Transform, pool: ThreadPoolExecutor
) -> LeafArrays:
    held = _empty(leaf)

    def load(index: tuple[int, ...], part: Transform, words: Words) -> None:
        here = {name: array[index] for name, array in held.items()}
        if leaf.format is None:
            part.read_into(source, here[VALUES], words)
        else:
            leaf.format.load(source, part, words, here, leaf.element(index))

    for done in [pool.submit(load, *one) for one in elements(transform)]:
        done.result()
    return _on_device(held)


def packed(leaf: Leaf, values: np.ndarray) -> LeafArrays:
    """Packs a leaf's numbers as its format does, and returns the device arrays."""
    held = _empty(leaf)
    if leaf.format is None:
        held[VALUES][...] = values
    else:
        leaf.format.pack(values, held, leaf.matrix)
    return _on_device(held)


def _empty(leaf: Leaf) -> dict[str, np.ndarray]:
    return {name: aligned_empty(one.shape, one.dtype) for name, one in leaf.arrays.items()}


def _on_device(held: Mapping[str, np.ndarray]) -> LeafArrays:
    return {name: jax.device_put(array).block_until_ready() for name, array in held.items()}


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Uninitialised array on a 64-byte boundary, which a CPU device uses without a copy."""
    num_bytes = math.prod(shape) * int(np.dtype(dtype).itemsize)
    raw = huge_pages.empty(num_bytes + 64)
    start = -raw.ctypes.data % 64
    aligned: np.ndarray = raw[start : start + num_bytes].view(dtype)
    return aligned.reshape(shape)


DEVIATION = 0.02
_BOUND = DEVIATION * 3**0.5  # uniform numbers are drawn several times faster than normal ones


def random_leaves(leaves: Mapping[str, Leaf], seed: int) -> dict[str, dict[str, jax.Array]]:
    """Draws every leaf from (seed, its name, its layer): uniform, with standard deviation 0.02.

    Scales of norms are one plus that. The numbers do not depend on the order of the leaves, and
    are the same, up to rounding, in every dtype. Raises OutOfMemoryError.
    """
    made = {}
    for name, leaf in leaves.items():
        with allocating(f"the weights {name}", leaf.num_bytes):
            values = random_values(leaf, seed)
            made[name] = {VALUES: values} if leaf.unchanged else packed(leaf, np.asarray(values))
    return made


def random_values(leaf: Leaf, seed: int) -> jax.Array:
    """The numbers of one leaf."""
    key = jax.random.key(seed)
    key = jax.random.fold_in(key, zlib.crc32(leaf.declared.encode()))
    mean = 1.0 if leaf.declared.endswith("norm.weight") else 0.0
    shape, dtype = leaf.matrix.shape, leaf.matrix.dtype
    if leaf.layers is None:
        values: jax.Array = _draw(key, shape, dtype, mean)
    else:
        values = _draw_stack(key, jnp.asarray(leaf.layers), shape[1:], dtype, mean)
    return values.block_until_ready()


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _draw(key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype, mean: float) -> jax.Array:
    values: jax.Array = mean + _BOUND * jax.random.uniform(key, shape, jnp.float32, -1, 1)
    return values.astype(dtype)


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _draw_stack(
    key: jax.Array, layers: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype, mean: float
) -> jax.Array:
    """Draws layer by layer, so that the float32 numbers never exist all at once."""
    keys = jax.vmap(lambda layer: jax.random.fold_in(key, layer))(layers)
    values: jax.Array = jax.lax.map(lambda one: _draw(one, shape, dtype, mean), keys)
    return values


Arrays = dict[str, dict[str, jax.Array]]


def shares_of(
    mesh: DeviceMesh | OneOfMany,
    spec: ModelSpec,
    whole: Mapping[str, Leaf],
    leaves: dict[str, Leaf],
) -> "Shares":
    """How the leaves of the whole model become those of the devices.

    Args:
        spec: the whole model.
        leaves: those of one device's share.
    """
    return Shares(mesh, whole, leaves, cuts_of(shapes_of(whole), spec, mesh.size))


def shapes_of(leaves: Mapping[str, Leaf]) -> dict[str, tuple[int, ...]]:
    """The shape of each leaf's numbers."""
    return {name: leaf.matrix.shape for name, leaf in leaves.items()}


@dataclass(frozen=True)
class Shares:
    """How a model's leaves are cut over devices.

    Attributes:
        whole: the leaves of the whole model.
        leaves: those of one device's share.
        cuts: the cuts of those that are not whole on each device.
    """

    mesh: DeviceMesh | OneOfMany
    whole: Mapping[str, Leaf]
    leaves: dict[str, Leaf]
    cuts: Mapping[str, Cut]

    def load(self, source: TensorSource, transforms: Mapping[str, Transform]) -> Arrays:
        """All leaves, each joined of the shares of this process's devices; see `load_leaves`.

        Args:
            transforms: how the leaves of the whole model are made.
        """
        each = []
        for rank, device in self.mesh.ranks:
            own = self.transforms(transforms, rank)
            with jax.default_device(device):
                each.append(load_leaves(source, self.leaves, own))
        return {name: self._joined([one[name] for one in each]) for name in self.leaves}

    def random(self, seed: int) -> Arrays:
        """Random weights, the same as of one device; see `random_leaves`."""
        return {name: self._random(name, leaf, seed) for name, leaf in self.whole.items()}

    def transforms(self, transforms: Mapping[str, Transform], rank: int) -> dict[str, Transform]:
        """How a device's leaves are made, from how those of the whole model are."""
        return {name: self._transform(name, one, rank) for name, one in transforms.items()}

    def _transform(self, name: str, whole: Transform, rank: int) -> Transform:
        cut = self.cuts.get(name)
        ndim = len(self.whole[name].matrix.shape)
        return whole if cut is None else cut.transform(whole, ndim, rank)

    def _random(self, name: str, leaf: Leaf, seed: int) -> dict[str, jax.Array]:
        cut, each = self.cuts.get(name), []
        with allocating(f"the weights {name}", leaf.num_bytes):
            values = np.asarray(random_values(leaf, seed))
            for rank, device in self.mesh.ranks:
                share = values if cut is None else cut.share(values, rank)
                with jax.default_device(device):
                    each.append(packed(self.leaves[name], share))
        return self._joined(each)

    def _joined(self, each: list[dict[str, jax.Array]]) -> dict[str, jax.Array]:
        return {part: self.mesh.joined([one[part] for one in each]) for part in each[0]}
