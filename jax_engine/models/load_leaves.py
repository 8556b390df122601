"""Loads a checkpoint's tensors into the decoder's arrays on the device, one leaf at a time.

To limit peak host memory, leaves are built largest first, and each is moved to the device and freed
before the next. A leaf of all layers is made layer by layer, so that packing needs the numbers of
few layers at a time. The peak stays well under 1.3 times the weights. On a CPU device the aligned
buffer *is* the device array (no copy is made).
"""

import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from jax_engine.host_memory import allocating
from jax_engine.models import huge_pages
from jax_engine.models.leaves import Leaf
from jax_engine.weights.format import VALUES
from jax_engine.weights.tensor_source import TensorSource
from jax_engine.weights.transforms import Transform, Words, elements

Arrays = dict[str, jax.Array]


def load_leaves(
    source: TensorSource, leaves: Mapping[str, Leaf], transforms: Mapping[str, Transform]
) -> dict[str, Arrays]:
    """All leaves as device arrays, from tensors that passed `check_tensors`.

    Raises:
        WeightsError: A tensor is unreadable.
        OutOfMemoryError: There was no memory for a leaf.
    """
    arrays: dict[str, Arrays] = {}
    largest_first = sorted(leaves, key=lambda name: -leaves[name].num_bytes)
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        for name in largest_first:
            with allocating(f"the weights {name}", leaves[name].num_bytes):
                arrays[name] = _load_leaf(source, leaves[name], transforms[name], pool)
    return arrays


def _load_leaf(
    source: TensorSource, leaf: Leaf, transform: Transform, pool: ThreadPoolExecutor
) -> Arrays:
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


def packed(leaf: Leaf, values: np.ndarray) -> Arrays:
    """Packs a leaf's numbers as its format does, and returns the device arrays."""
    held = _empty(leaf)
    if leaf.format is None:
        held[VALUES][...] = values
    else:
        leaf.format.pack(values, held, leaf.matrix)
    return _on_device(held)


def _empty(leaf: Leaf) -> dict[str, np.ndarray]:
    return {name: aligned_empty(one.shape, one.dtype) for name, one in leaf.arrays.items()}


def _on_device(held: Mapping[str, np.ndarray]) -> Arrays:
    return {name: jax.device_put(array).block_until_ready() for name, array in held.items()}


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Uninitialised array on a 64-byte boundary, which a CPU device uses without a copy."""
    num_bytes = math.prod(shape) * int(np.dtype(dtype).itemsize)
    raw = huge_pages.empty(num_bytes + 64)
    start = -raw.ctypes.data % 64
    aligned: np.ndarray = raw[start : start + num_bytes].view(dtype)
    return aligned.reshape(shape)
