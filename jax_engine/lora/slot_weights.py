"""The adapters' slots on the device: fixed arrays, of which an adapter takes one slot of each.

Of several devices that share the model each has its part of every slot. The controller says which
adapter lies in which slot (`jax_engine.core.adapter_slots`).
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array

from jax_engine.errors import WeightsError
from jax_engine.lora.adapted_leaves import (
    adapted_leaves,
    check_supported,
    is_changed,
    matrices,
    slots_of_device,
)
from jax_engine.lora.adapter import AdaptedModule, Adapter
from jax_engine.models.leaves import abstract_leaves
from jax_engine.models.model_loader import LoadedModel
from jax_engine.operations import device_operations, this_device
from jax_engine.parallel.mesh import SHARE, WHOLE, DeviceMesh
from jax_engine.weights.low_rank import RANKS, A, B, SlotLayout, Slots
from jax_engine.weights.matrix import ArraySpec


class AdapterSlots:
    """The slots of all weights of a model that adapters can change.

    An adapter is written whole, over all layers and weights, so that nothing of the one before it
    stays: not where it has fewer modules or smaller ranks.

    Args:
        model: with or without its weights.
        count: how many adapters are held; slots are numbered from 1.
        max_rank: the largest rank that a slot holds.
        dtype: dtype of activations.

    Attributes:
        arrays: arrays of all leaves, one after another: only their shapes until `make`. Steps that
            were launched keep those that they got. With several devices each array has all their
            parts.
    """

    def __init__(self, model: LoadedModel, count: int, max_rank: int, dtype: DTypeLike) -> None:
        self.count, self.dtype = count, held_dtype(dtype)
        self._shares, config = model.shares, model.config.undivided
        whole = self._shares.whole if self._shares else abstract_leaves(model.params, config.spec)
        self.leaves = [
            replace(leaf, layout=replace(leaf.layout, bias_rows=this_device().bias_rows))
            for leaf in adapted_leaves(config, whole, count, max_rank)
        ]
        self._own = [slots_of_device(leaf, self._shares) for leaf in self.leaves]
        self._specs = [own.layout.arrays(self.dtype) for own in self._own]
        # One program for leaves of one layout
        layouts = dict.fromkeys(own.layout for own in self._own)
        programs = {one: _program(one, model.mesh) for one in layouts}
        self._write = [programs[own.layout] for own in self._own]
        self._changed: list[set[int]] = []  # of each slot, the leaves that its adapter changes
        shapes = (
            jax.ShapeDtypeStruct(spec.shape, spec.dtype)
            for specs in self._specs
            for spec in specs.values()
        )
        held_by = self._shares.mesh if self._shares else None
        self.arrays: list[Any] = [held_by.abstract(one) if held_by else one for one in shapes]

    def make(self) -> None:
        """Makes all slots, without adapters, and compiles what writes to those of layers.

        What writes to those of an embedding or a head waits for the first adapter of one.
        """
        specs = (spec for specs in self._specs for spec in specs.values())
        for place, spec in enumerate(specs):  # each frees the one before it
            self.arrays[place] = self._zeros(spec)
        self._changed = [set() for _ in range(self.count)]
        a_leaf_of = {own.layout: number for number, own in enumerate(self._own)}
        for layout, number in a_leaf_of.items():
            if layout.layers > 1:
                self._write_leaf(1, number, {}, pieces=1)

    def _zeros(self, spec: ArraySpec) -> Array:
        zeros, each = device_operations().zeros, list[Array]()
        if self._shares is None:
            alone: Array = zeros(spec.shape, spec.dtype)
            return alone
        for _, device in self._shares.mesh.ranks:
            with jax.default_device(device):
                each.append(zeros(spec.shape, spec.dtype))
        return self._shares.mesh.joined(each)

    def write(self, slot: int, adapter: Adapter) -> None:
        """Puts an adapter into a slot, in place of what was there. Steps in flight are not touched.

        Raises:
            WeightsError: there is no such slot, or it cannot hold the adapter: a module cannot be
                computed, or a rank is too large. Nothing has changed then.
        """
        if not 1 <= slot <= self.count:
            raise WeightsError(f"an adapter's slot must be between 1 and {self.count}, got {slot}.")
        check_supported(adapter, self.leaves)
        modules = {one.name: one for one in adapter.modules}
        changed = {n for n, leaf in enumerate(self.leaves) if is_changed(leaf, modules)}
        for number in changed | self._changed[slot - 1]:
            self._write_leaf(slot, number, modules)
        self._changed[slot - 1] = changed

    def _write_leaf(
        self,
        slot: int,
        number: int,
        modules: Mapping[str, AdaptedModule],
        pieces: int | None = None,
    ) -> None:
        """Writes a leaf's arrays of one slot; where there are no modules of it, it is emptied.

        Args:
            pieces: How many of those of `matrices` are written; None: all.
        """
        names = [*self._specs[number]]
        own = slice(len(names) * number, len(names) * (number + 1))
        held = dict(zip(names, self.arrays[own], strict=True))
        for layer, new in itertools.islice(matrices(self.leaves[number], modules), pieces):
            place = np.int32(layer), np.int32(slot - 1)
            held = self._write[number](held, self._of_devices(number, new), *place)
        self.arrays[own] = [held[name] for name in names]

    def _of_devices(self, number: int, new: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What this process's devices have of a leaf's matrices, one behind the other."""
        if self._shares is None:
            return new
        each = [self._own[number].share(new, rank) for rank, _ in self._shares.mesh.ranks]
        return {name: np.concatenate([one[name] for one in each]) for name in new}

    @property
    def num_bytes(self) -> int:
        """What the slots take, on all devices together."""
        each = [spec for specs in self._specs for spec in specs.values()]
        size = self._shares.mesh.size if self._shares else 1
        return size * sum(math.prod(one.shape) * one.dtype.itemsize for one in each)

    def attach(self, model: Any, arrays: list[Array]) -> None:
        """Gives the modules of a decoder their slots; `arrays` are those of `self.arrays`."""
        rest = iter(arrays)
        for leaf, own, specs in zip(self.leaves, self._own, self._specs, strict=True):
            held = {name: next(rest) for name in specs}
            *module, attribute = leaf.path
            setattr(_module(model, module), str(attribute), Slots(held, layout=own.layout))


def held_dtype(dtype: DTypeLike) -> jnp.dtype:
    """In which dtype slots hold numbers, for activations of a dtype."""
    half = jnp.dtype(dtype) == jnp.bfloat16
    return jnp.dtype(jnp.bfloat16 if half else jnp.float32)


def _program(layout: SlotLayout, mesh: DeviceMesh | None) -> Any:
    """`_write` for slots of one layout; of several devices of this process each writes its own."""
    write = partial(_write, layout)
    if mesh is None:
        return jax.jit(write, donate_argnums=0)
    return mesh.compiled(write, (SHARE, SHARE, WHOLE, WHOLE), SHARE, donate_argnums=0)


def _write(
    layout: SlotLayout, held: dict[str, Array], new: dict[str, Array], layer: Array, slot: Array
) -> dict[str, Array]:
    """Packs an adapter's matrices of a leaf into a slot of its arrays: see `matrices`."""
    packed = {A: layout.packed_a(new[A]), B: layout.packed_b(new[B]), RANKS: new[RANKS]}
    # All layers of one slot; or of one layer as many slots as there are choices.
    axis, first = (0, slot * layout.choices) if layout.choices else (1, slot)
    return {
        name: lax.dynamic_update_slice(
            old,
            jnp.expand_dims(packed[name].astype(old.dtype), axis),
            (layer, first, *[0] * (old.ndim - 2)),
        )
        for name, old in held.items()
    }


def _module(model: Any, path: Sequence[str | int]) -> Any:
    for part in path:
        model = model[part] if isinstance(part, int) else getattr(model, part)
    return model
