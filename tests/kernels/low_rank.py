"""Adapters of random numbers in slots, and what they add by NumPy in float64."""

import itertools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jax_engine.operations import xla
from jax_engine.weights.low_rank import RANKS, A, B, LowRank, SlotLayout, halves_of, sort_rows


class Module(NamedTuple):
    """An adapter's matrices for one part, or Nones for a module that it does not have."""

    a: np.ndarray | None
    b: np.ndarray | None
    bias: np.ndarray | None


class Case(NamedTuple):
    """Slots, and the rows that use them.

    Attributes:
        modules: by layer, slot (from 0 on) and part.
        columns: columns of each part.
    """

    layout: SlotLayout
    columns: list[range]
    modules: list[list[list[Module]]]
    arrays: dict[str, Any]
    x: Any
    slot: np.ndarray
    layer: int

    @property
    def low(self) -> LowRank:
        rows = sort_rows(jnp.asarray(self.slot, jnp.int32), self.layout.slots)
        layer, add = jnp.int32(self.layer), xla.add_low_rank
        return LowRank(self.x, self.arrays, self.layout, layer, rows, add)

    def added(self, row: int) -> np.ndarray:
        """What a row's adapter adds, in float64."""
        found, slot = np.zeros(self.layout.out_size), int(self.slot[row])
        if slot == 0:
            return found
        x = np.asarray(self.x[row], np.float64)
        for part, one in zip(self.columns, self.modules[self.layer][slot - 1], strict=True):
            if one.a is not None and one.b is not None:
                found[part.start : part.stop] = one.b @ (one.a @ x)
                if one.bias is not None:
                    found[part.start : part.stop] += one.bias
        return found

    def size(self, row: int) -> np.ndarray:
        """The sum of what is added for each column, all of it taken as positive."""
        found, slot = np.zeros(self.layout.out_size), int(self.slot[row])
        x = np.abs(np.asarray(self.x[row], np.float64))
        for part, one in zip(self.columns, self.modules[self.layer][slot - 1], strict=True):
            if slot and one.a is not None and one.b is not None:
                found[part.start : part.stop] = np.abs(one.b) @ (np.abs(one.a) @ x)
        return found


def make(
    seed: int,
    *,
    rows: list[int],
    in_size: int,
    sizes: list[int],
    ranks: list[list[int]],
    max_rank: int,
    gated: bool = False,
    biased: bool = False,
    dtype: Any = jnp.float32,
    x_dtype: Any = None,
    layers: int = 2,
    bias_rows: int = 1,
) -> Case:
    """Random slots.

    Args:
        rows: each row's slot.
        sizes: columns of each part.
        ranks: ranks of each slot's parts; 0: the adapter has no such module.
        bias_rows: as in `SlotLayout`.
    """
    rng = np.random.default_rng(seed)
    ends = np.cumsum([0, *sizes]).tolist()
    columns = [range(start, stop) for start, stop in itertools.pairwise(ends)]
    layout = SlotLayout(
        layers, len(ranks), in_size, ends[-1], max_rank, len(sizes),
        halves_of(columns, gated=gated), bias_rows,
    )  # fmt: skip
    held = {name: np.zeros(one.shape, one.dtype) for name, one in layout.arrays(dtype).items()}

    def drawn(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(dtype)

    def module(rank: int, size: int) -> Module:
        if rank == 0:
            return Module(None, None, None)
        bias = drawn(size) if biased else None
        return Module(drawn(rank, in_size), drawn(size, rank), bias)

    modules = [
        [[module(rank, size) for rank, size in zip(each, sizes, strict=True)] for each in ranks]
        for _ in range(layers)
    ]
    for slot in range(len(modules[0])):
        a = np.zeros((layers, layout.parts * layout.held_rank, in_size), np.float32)
        b = np.zeros((layers, layout.out_size, layout.held_rank + 1), np.float32)
        for layer, of_layer in enumerate(modules):
            for part, one in enumerate(of_layer[slot]):
                if one.a is not None and one.b is not None:
                    first = part * layout.held_rank
                    own = slice(columns[part].start, columns[part].stop)
                    a[layer, first : first + len(one.a)] = one.a
                    held[RANKS][layer, slot, part] = len(one.a), one.bias is not None
                    b[layer, own, : len(one.a)] = one.b
                    if one.bias is not None:
                        b[layer, own, -1] = one.bias
        held[A][:, slot] = np.asarray(layout.packed_a(jnp.asarray(a)))
        held[B][:, slot] = np.asarray(layout.packed_b(jnp.asarray(b)))
    wide = [
        [
            [Module(*(None if m is None else np.asarray(m, np.float64) for m in one)) for one in s]
            for s in layer
        ]
        for layer in modules
    ]
    x = jnp.asarray(rng.normal(size=(len(rows), in_size)), x_dtype or dtype)
    arrays = {name: jnp.asarray(array) for name, array in held.items()}
    return Case(layout, columns, wide, arrays, x, np.array(rows), int(rng.integers(layers)))
